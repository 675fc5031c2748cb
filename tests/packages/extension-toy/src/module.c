#include <Python.h>
#include "twice.h"

static PyObject *built(PyObject *self, PyObject *arguments) {
  (void)self, (void)arguments;
  return Py_BuildValue("sssi", __FILE__, __DATE__, __TIMESTAMP__, twice(21));
}

static PyMethodDef methods[] = {{"built", built, METH_NOARGS, "Say what was compiled in."}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "extension_toy", 0, -1, methods, 0, 0, 0, 0};

PyMODINIT_FUNC PyInit_extension_toy(void) { return PyModule_Create(&module); }
