# The C types of `_walk.py`, from which the module `ottla.records._walk_native` is compiled. Numbers on the way to being
# decoded are unsigned, so that cutting them to their bits is defined; bounds checks stay on.
import cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from libc.string cimport memcpy


cdef extern from *:
    """
    #define ottla_alloc(kind, size) PyType_GenericAlloc((PyTypeObject *) (kind), (size))
    """
    object ottla_alloc(object kind, Py_ssize_t size)


ctypedef unsigned long long u64
ctypedef long long i64
ctypedef const unsigned char[::1] octets

cdef Py_ssize_t SMALLEST_RECORD, NULL_SIZE, NO_HEADERS


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


cdef inline int resize(bytearray data, Py_ssize_t size) except -1:
    # What is new has not been written to.
    return PyByteArray_Resize(data, size)


cdef inline object tuple_of(type kind, tuple fields):
    # What tuple.__new__(kind, fields) does, faster; `kind` was found to be a kind of tuple.
    cdef Py_ssize_t size = PyTuple_GET_SIZE(fields)
    cdef Py_ssize_t index
    cdef object made
    made = ottla_alloc(kind, size)
    for index in range(size):
        item = <object> PyTuple_GET_ITEM(fields, index)
        Py_INCREF(item)
        PyTuple_SET_ITEM(made, index, item)
    return made


@cython.final
cdef class Cursor:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t size
    cdef Py_ssize_t at
    cdef i64 offset_delta
    cdef i64 timestamp_delta
    cdef Py_ssize_t record_end
    cdef Py_ssize_t key_at
    cdef Py_ssize_t key_size
    cdef Py_ssize_t value_at
    cdef Py_ssize_t value_size
    cdef Py_ssize_t headers_at

    @cython.locals(at=Py_ssize_t, number=u64, mask=u64)
    cdef inline i64 varint(self) noexcept

    @cython.locals(number=u64)
    cdef inline i64 varlong(self) noexcept

    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, number=u64, byte=u64, mask=u64, shift=int)
    cdef inline u64 _long_number(self, int most_bytes) noexcept

    @cython.locals(length=i64)
    cdef inline void skip_value_and_headers(self) noexcept

    @cython.locals(length=i64)
    cdef void skip_headers(self, i64 count) noexcept

    @cython.locals(length=i64, left=Py_ssize_t, size=i64)
    cdef inline int read_record(self, Py_ssize_t index) except -1


@cython.locals(
    cursor=Cursor, index=Py_ssize_t, length=i64, left=Py_ssize_t, record_end=Py_ssize_t, timestamp=i64, key_size=i64,
    keyless=Py_ssize_t, counts_up=bint, lowest=i64, highest=i64,
)
cpdef check_records(records, Py_ssize_t count, i64 base_timestamp)

@cython.locals(
    cursor=Cursor, index=Py_ssize_t, length=i64, left=Py_ssize_t, record_end=Py_ssize_t, key_size=i64, at=Py_ssize_t,
    offset_deltas=list, timestamp_deltas=list, keys=list, has_values=list, ends=list,
)
cpdef scan_keys(bytes records, Py_ssize_t count)

@cython.locals(cursor=Cursor, index=Py_ssize_t, offset=i64, made=list, fields=tuple, size=Py_ssize_t)
cpdef read_records(
    records, Py_ssize_t count, kind, str topic, partition, i64 base_offset, i64 base_timestamp, timestamp_type,
    append_timestamp, leader_epoch, i64 start_offset, key_deserializer, value_deserializer,
)

cdef int _check_count(Py_ssize_t size, Py_ssize_t count) except -1

@cython.locals(left=Py_ssize_t)
cdef int _check_end(Cursor cursor, Py_ssize_t count) except -1


@cython.final
cdef class BinaryColumn:
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t used
    cdef readonly Py_ssize_t nulls
    cdef readonly object ends
    cdef readonly bytearray data
    cdef readonly bytearray valid
    cdef int[::1] _ends

    @cython.locals(room=Py_ssize_t)
    cpdef reserve(self, Py_ssize_t rows, Py_ssize_t size)

    @cython.locals(row=Py_ssize_t)
    cdef inline int append(self, octets source, Py_ssize_t at, Py_ssize_t size) except -1

    @cython.locals(room=Py_ssize_t)
    cdef int _reserve_bytes(self, Py_ssize_t size) except -1


@cython.final
cdef class RowColumns:
    cdef readonly bint with_headers
    cdef readonly Py_ssize_t count
    cdef readonly object offsets
    cdef readonly object timestamps
    cdef readonly BinaryColumn keys
    cdef readonly BinaryColumn values
    cdef readonly object header_ends
    cdef readonly BinaryColumn header_keys
    cdef readonly BinaryColumn header_values
    cdef i64[::1] _offsets
    cdef i64[::1] _timestamps

    @cython.locals(room=Py_ssize_t)
    cpdef reserve(self, Py_ssize_t rows, Py_ssize_t size)

    @cython.locals(
        cursor=Cursor, index=Py_ssize_t, offset=i64, row=Py_ssize_t, before=Py_ssize_t,
        is_append_time=bint, fixed_timestamp=i64,
    )
    cpdef append(
        self, records, Py_ssize_t count, i64 base_offset, i64 base_timestamp, append_timestamp, i64 start_offset,
        i64 end_offset,
    )

    @cython.locals(cursor=Cursor, count=i64, size=i64)
    cdef _add_headers(self, records, Py_ssize_t at, Py_ssize_t row)


@cython.locals(total=u64, mask=u64)
cdef i64 _plus(u64 left, u64 right) noexcept
