/* The frame splitter for any bytes: what comes out is what went in, for a coverage-guided fuzzer.
 *
 * Input: five bytes for the snapshot, then a chunk. docs/fuzzing.md has the rest.
 */

#define PY_SSIZE_T_CLEAN
#include "python_side.h"

static PyObject *snapshot_type, *engine_type;

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    start_python(&snapshot_type, &engine_type);
    return 0;
}

/* The bytes of the parts of a list: tuples of a link and a run, or bodies, which have lost their lengths. */
static Py_ssize_t
bytes_of(PyObject *list, int are_runs)
{
    Py_ssize_t total = 0;

    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        PyObject *item = PyList_GET_ITEM(list, i);
        PyObject *bytes = are_runs ? PyTuple_GetItem(item, 1) : item;
        total += PyBytes_Size(bytes) + (are_runs ? 0 : 4);
    }
    return total;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input from = {data, size};
    const int space = 2 + next_byte(&from) % 60, outside = next_byte(&from) % 64;
    const uint32_t low = next_byte(&from), peers = low << 1 | (uint32_t)next_byte(&from) << 9;
    const int came_from = next_byte(&from) % 34 - 1;
    PyObject *made = new_snapshot(snapshot_type, space, outside, peers, 100);
    PyObject *chunk = PyByteArray_FromStringAndSize((const char *)from.bytes, (Py_ssize_t)from.left);
    PyObject *parts = PyObject_CallMethod(made, "split", "Oni", chunk, (Py_ssize_t)from.left, came_from);
    Py_ssize_t consumed;

    expect(parts != NULL && PyTuple_Size(parts) == 4);
    consumed = PyLong_AsSsize_t(PyTuple_GET_ITEM(parts, 0));
    expect(consumed >= 0 && consumed <= (Py_ssize_t)from.left);
    expect(bytes_of(PyTuple_GET_ITEM(parts, 1), 1) + bytes_of(PyTuple_GET_ITEM(parts, 2), 0)
           == consumed);
    Py_DECREF(parts);
    Py_DECREF(chunk);
    Py_DECREF(made);
    return 0;
}
