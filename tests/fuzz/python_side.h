/* What the fuzz targets of the extensions share: an interpreter with both extensions in it.
 *
 * They are linked into the program, so that the fuzzer sees their branches. Nothing of the package in
 * Python is loaded: the one error that they take from there is a ValueError here.
 */
#ifndef BMGD_FUZZ_PYTHON_SIDE_H
#define BMGD_FUZZ_PYTHON_SIDE_H

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

PyMODINIT_FUNC PyInit__fastroute(void);
PyMODINIT_FUNC PyInit__engine(void);

/* What the interpreter keeps to its end is no leak of the extensions. */
const char *__asan_default_options(void);
const char *
__asan_default_options(void)
{
    return "detect_leaks=0";
}

/* Something must hold, whatever the input. */
static inline void
expect(int holds)
{
    if (holds)
        return;
    if (PyErr_Occurred())
        PyErr_Print();
    abort();
}

/* Load an extension under the name that the other one imports it by. */
static inline PyObject *
load(const char *name, const char *full_name)
{
    PyObject *module = PyImport_ImportModule(name);

    expect(module != NULL);
    expect(PyDict_SetItemString(PyImport_GetModuleDict(), full_name, module) == 0);
    return module;
}

/* Start Python; the type `Snapshot`, and the type `Engine`. */
static inline void
start_python(PyObject **snapshot_type, PyObject **engine_type)
{
    PyObject *routing, *engines, *errors;

    /* Each object in memory of its own, for the sanitizer to see its ends. */
    setenv("PYTHONMALLOC", "malloc", 1);
    PyImport_AppendInittab("_fastroute", PyInit__fastroute);
    PyImport_AppendInittab("_engine", PyInit__engine);
    Py_InitializeEx(0);
    expect(PyImport_AddModule("bmgd") != NULL);
    errors = PyImport_AddModule("bmgd.errors");
    expect(errors != NULL && PyObject_SetAttrString(errors, "GraphError", PyExc_ValueError) == 0);
    routing = load("_fastroute", "bmgd._fastroute");
    engines = load("_engine", "bmgd._engine");
    *snapshot_type = PyObject_GetAttrString(routing, "Snapshot");
    *engine_type = PyObject_GetAttrString(engines, "Engine");
    expect(*snapshot_type != NULL && *engine_type != NULL);
}

/* The input, byte by byte; zeros behind its end. */
typedef struct {
    const uint8_t *bytes;
    size_t left;
} input;

static inline uint8_t
next_byte(input *from)
{
    if (from->left == 0)
        return 0;
    from->left--;
    return *from->bytes++;
}

/* The next bytes as they are, at most `count`. */
static inline PyObject *
next_bytes(input *from, size_t count)
{
    const size_t some = count < from->left ? count : from->left;
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)from->bytes, (Py_ssize_t)some);

    expect(bytes != NULL);
    from->bytes += some;
    from->left -= some;
    return bytes;
}

/* A snapshot of node 0: `space` ids, one run of them outside, and links to the peers whose bit is set in
 * `peers`; the link's id is the peer's and `first_link`. */
static inline PyObject *
new_snapshot(PyObject *type, int space, int outside, uint32_t peers, int first_link)
{
    PyObject *runs = outside > 0 && outside + 2 < space ? Py_BuildValue("[(ii)]", outside, outside + 1)
                                                        : PyList_New(0);
    PyObject *links = PyList_New(0), *made;

    for (int peer = 1; peer < 32 && peer < space; peer++) {
        PyObject *pair;
        if (!(peers >> peer & 1) || peer == outside)
            continue;
        pair = Py_BuildValue("(ii)", peer, first_link + peer);
        expect(pair != NULL && PyList_Append(links, pair) == 0);
        Py_DECREF(pair);
    }
    made = PyObject_CallFunction(type, "iiiNN", 1, 0, space, runs, links);
    expect(made != NULL);
    return made;
}

#endif
