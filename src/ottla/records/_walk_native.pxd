# The C types of `_walk.py`, from which the module `ottla.records._walk_native` is compiled. Numbers on the way to being
# decoded are unsigned, so that cutting them to their bits is defined; bounds checks stay on.
import cython
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from ottla.records.octets cimport copy_octets, i64, octets, octets_of, put_int, put_long, resize


cdef extern from *:
    """
    #define ottla_alloc(kind, size) PyType_GenericAlloc((PyTypeObject *) (kind), (size))
    """
    object ottla_alloc(object kind, Py_ssize_t size)
    void PyObject_GC_UnTrack(object)


ctypedef unsigned long long u64

cdef Py_ssize_t SMALLEST_RECORD, NULL_SIZE, NO_HEADERS


cdef inline str text_of(octets data, Py_ssize_t at, Py_ssize_t size):
    if size == 0:
        return ""
    if size < 0 or at < 0 or size > data.shape[0] - at:
        raise IndexError("a copy from beyond the end")
    return PyUnicode_DecodeUTF8(<char *> &data[at], size, b"replace")


cdef inline int set_item(object made, Py_ssize_t index, object item) except -1:
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, index, item)
    return 0


cdef inline object record_of(
    type kind, bint is_plain, topic, partition, i64 offset, time, timestamp_type, key, value, headers, leader_epoch,
    Py_ssize_t key_size, Py_ssize_t value_size,
):
    # What tuple.__new__ does, without the tuple that it is given; `kind` was found to be a kind of tuple. Bytes,
    # strings and numbers cannot make a cycle, so the garbage collector need not look at plain ones.
    cdef object made = ottla_alloc(kind, 11)
    set_item(made, 0, topic)
    set_item(made, 1, partition)
    set_item(made, 2, offset)
    set_item(made, 3, time)
    set_item(made, 4, timestamp_type)
    set_item(made, 5, key)
    set_item(made, 6, value)
    set_item(made, 7, headers)
    set_item(made, 8, leader_epoch)
    set_item(made, 9, key_size)
    set_item(made, 10, value_size)
    if is_plain:
        PyObject_GC_UnTrack(made)
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

@cython.locals(
    reader=Cursor, index=Py_ssize_t, offset=i64, made=list, is_plain=bint, is_append_time=bint, timestamp=i64, added=i64,
)
cpdef read_records(
    records, Py_ssize_t count, kind, str topic, partition, i64 base_offset, i64 base_timestamp, timestamp_type,
    append_timestamp, leader_epoch, i64 start_offset, key_deserializer, value_deserializer,
)

@cython.locals(behind=Py_ssize_t, count=i64, size=i64, headers=list, name=str, value=bytes)
cdef tuple _headers(Cursor reader)

@cython.locals(
    reader=Cursor, index=Py_ssize_t, offset_deltas=list, timestamp_deltas=list, keys=list, values=list, headers=list
)
cpdef read_columns(records, Py_ssize_t count)

cdef Cursor _reader(records, Py_ssize_t count)

cdef int _check_count(Py_ssize_t size, Py_ssize_t count) except -1

@cython.locals(left=Py_ssize_t)
cdef int _check_end(Cursor cursor, Py_ssize_t count) except -1


cdef int room_for(bytearray buffer, Py_ssize_t size) except -1


@cython.final
cdef class BinaryColumn:
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t used
    cdef readonly Py_ssize_t nulls
    cdef readonly bytearray ends
    cdef readonly bytearray data
    cdef readonly bytearray valid

    @cython.locals(most=Py_ssize_t)
    cpdef reserve(self, Py_ssize_t rows, Py_ssize_t size)

    @cython.locals(row=Py_ssize_t, bit=int)
    cdef inline int append(self, Cursor source, Py_ssize_t at, Py_ssize_t size) except -1

    cpdef cut(self, Py_ssize_t count, Py_ssize_t used, Py_ssize_t nulls)


@cython.final
cdef class RowColumns:
    cdef readonly bint with_headers
    cdef readonly Py_ssize_t count
    cdef readonly bytearray offsets
    cdef readonly bytearray timestamps
    cdef readonly BinaryColumn keys
    cdef readonly BinaryColumn values
    cdef readonly bytearray header_ends
    cdef readonly BinaryColumn header_keys
    cdef readonly BinaryColumn header_values

    @cython.locals(room=Py_ssize_t)
    cpdef reserve(self, Py_ssize_t rows, Py_ssize_t size)

    @cython.locals(
        reader=Cursor, index=Py_ssize_t, offset=i64, before=Py_ssize_t, is_append_time=bint, timestamp=i64,
        column=BinaryColumn, rows=Py_ssize_t, used=Py_ssize_t, nulls=Py_ssize_t,
    )
    cpdef append(
        self, records, Py_ssize_t count, i64 base_offset, i64 base_timestamp, append_timestamp, i64 start_offset,
        i64 end_offset,
    )

    @cython.locals(row=Py_ssize_t)
    cdef inline int _add(self, Cursor reader, i64 offset, i64 timestamp) except -1

    @cython.locals(behind=Py_ssize_t, count=i64, size=i64)
    cdef int _add_headers(self, Cursor reader) except -1


@cython.locals(total=u64, mask=u64)
cdef i64 _plus(u64 left, u64 right) noexcept
