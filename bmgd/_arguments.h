/* Python objects to checked numbers, and back; the including file has included Python.h. */
#ifndef BMGD_ARGUMENTS_H
#define BMGD_ARGUMENTS_H

#include <Python.h>
#include <stdint.h>

#include "_arithmetic.h"

#define U32_LIMIT ((int64_t)1 << 32)

/* Store `object` as a number within low..high, or set GraphError (TypeError) and return -1. */
static inline int
as_number(PyObject *object, const char *what, int64_t low, int64_t high, PyObject *graph_error,
          int64_t *number)
{
    int overflow;
    PyObject *integer = PyNumber_Index(object);

    if (integer == NULL)
        return -1;
    *number = PyLong_AsLongLongAndOverflow(integer, &overflow);
    if (*number == -1 && PyErr_Occurred()) {
        Py_DECREF(integer);
        return -1;
    }
    if (overflow != 0 || *number < low || *number > high) {
        PyErr_Format(graph_error, "%s %S is not within %lld..%lld", what, integer,
                     (long long)low, (long long)high);
        Py_DECREF(integer);
        return -1;
    }
    Py_DECREF(integer);
    return 0;
}

static inline int
as_flow(PyObject *object, PyObject *graph_error, uint64_t *flow)
{
    PyObject *integer = PyNumber_Index(object);

    if (integer == NULL)
        return -1;
    *flow = PyLong_AsUnsignedLongLong(integer);
    if (*flow == (uint64_t)-1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError))
            PyErr_Format(graph_error, "flow %S is not within 0..2**64-1", integer);
        Py_DECREF(integer);
        return -1;
    }
    Py_DECREF(integer);
    return 0;
}

/* Sort positional and keyword arguments into `found`, which is `most` long; -1 on error. */
static inline int
bind_arguments(const char *function, const char *const *names, Py_ssize_t least, Py_ssize_t most,
     PyObject *const *args, Py_ssize_t count, PyObject *keywords, PyObject **found)
{
    const Py_ssize_t named = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);

    if (count > most) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %zd arguments", function, most);
        return -1;
    }
    for (Py_ssize_t i = 0; i < most; i++)
        found[i] = i < count ? args[i] : NULL;
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *keyword = PyTuple_GET_ITEM(keywords, k);
        Py_ssize_t i = 0;
        while (i < most && PyUnicode_CompareWithASCIIString(keyword, names[i]) != 0)
            i++;
        if (i == most || found[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected argument '%U'", function,
                         keyword);
            return -1;
        }
        found[i] = args[count + k];
    }
    for (Py_ssize_t i = 0; i < least; i++) {
        if (found[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() misses the argument '%s'", function, names[i]);
            return -1;
        }
    }
    return 0;
}

#define BIND(function, least, ...)                                                              \
    static const char *const names[] = {__VA_ARGS__};                                           \
    PyObject *given[Py_ARRAY_LENGTH(names)];                                                    \
    if (bind_arguments(function, names, least, Py_ARRAY_LENGTH(names), args, count, keywords, given) < 0) \
        return NULL;

/* The checked arguments (n, distance) of the hop functions, the distance modulo n. */
static inline int
as_distance(PyObject *graph_error, PyObject *const *given, int64_t *n, int64_t *d)
{
    if (as_number(given[0], "size", 1, SIZE_MAX_RANKS, graph_error, n) < 0)
        return -1;
    if (as_number(given[1], "distance", 1 - *n, *n - 1, graph_error, d) < 0)
        return -1;
    *d += *d < 0 ? *n : 0;
    return 0;
}

static inline int
as_distance_to_another(PyObject *graph_error, PyObject *const *given, int64_t *n, int64_t *d)
{
    if (as_distance(graph_error, given, n, d) < 0)
        return -1;
    if (*d == 0) {
        PyErr_SetString(graph_error, "distance 0 has no first hop");
        return -1;
    }
    return 0;
}

static inline PyObject *
tuple_of(const int64_t *numbers, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);

    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

/* The end of an extension module whose state begins with an error class; the including file has
 * `module_state`, `module_exec`, `module_traverse`, `module_clear` and a table of methods.
 */
#if PY_VERSION_HEX >= 0x030C0000
#define MULTIPLE_INTERPRETERS {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#else
#define MULTIPLE_INTERPRETERS
#endif

#define MODULE_END(name, doc, methods)                                                             \
    static PyModuleDef_Slot module_slots[] = {                                                     \
        {Py_mod_exec, module_exec}, MULTIPLE_INTERPRETERS{0, NULL}};                               \
    static PyModuleDef module_definition = {                                                       \
        PyModuleDef_HEAD_INIT,                                                                     \
        .m_name = "bmgd." #name,                                                                   \
        .m_doc = doc,                                                                              \
        .m_size = sizeof(module_state),                                                            \
        .m_methods = methods,                                                                      \
        .m_slots = module_slots,                                                                   \
        .m_traverse = module_traverse,                                                             \
        .m_clear = module_clear,                                                                   \
    };                                                                                             \
    PyMODINIT_FUNC PyInit_##name(void)                                                             \
    {                                                                                              \
        return PyModuleDef_Init(&module_definition);                                               \
    }

/* The class of errors that a module raises, from bmgd.errors; NULL with an exception set. */
static inline PyObject *
import_error(const char *name)
{
    PyObject *errors = PyImport_ImportModule("bmgd.errors"), *found;

    if (errors == NULL)
        return NULL;
    found = PyObject_GetAttrString(errors, name);
    Py_DECREF(errors);
    return found;
}

#endif
