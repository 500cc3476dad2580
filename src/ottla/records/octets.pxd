# What the compiled modules do with buffers of bytes, bounds checked; `uncompiled.py` has the same for plain Python.
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

ctypedef long long i64
ctypedef const unsigned char[::1] octets


cdef inline int copy_octets(bytearray into, Py_ssize_t at, octets data, Py_ssize_t start, Py_ssize_t size) except -1:
    if size == 0:
        return 0
    if size < 0 or at < 0 or start < 0 or size > PyByteArray_GET_SIZE(into) - at or size > data.shape[0] - start:
        raise IndexError("copy beyond the end")
    memcpy(PyByteArray_AS_STRING(into) + at, &data[start], size)
    return 0


cdef inline bytes octets_of(octets data, Py_ssize_t at, Py_ssize_t size):
    if size == 0:
        return b""
    if size < 0 or at < 0 or size > data.shape[0] - at:
        raise IndexError("a copy from beyond the end")
    return PyBytes_FromStringAndSize(<const char *> &data[at], size)


cdef inline int resize(bytearray buffer, Py_ssize_t size) except -1:
    # What is new has not been written to.
    return PyByteArray_Resize(buffer, size)


cdef inline int put_int(bytearray into, Py_ssize_t index, int number) except -1:
    if index < 0 or index >= PyByteArray_GET_SIZE(into) >> 2:
        raise IndexError("a number beyond the end")
    memcpy(PyByteArray_AS_STRING(into) + 4 * index, &number, 4)
    return 0


cdef inline int put_long(bytearray into, Py_ssize_t index, i64 number) except -1:
    if index < 0 or index >= PyByteArray_GET_SIZE(into) >> 3:
        raise IndexError("a number beyond the end")
    memcpy(PyByteArray_AS_STRING(into) + 8 * index, &number, 8)
    return 0
