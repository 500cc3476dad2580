# The C types of `_building.py`, from which the module `ottla.records._building_native` is compiled. Differences of
# numbers of 64 bits are taken as unsigned ones, so that what does not fit is cut as Java cuts it; bounds checks stay on.
import cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy
from ottla.records.octets cimport copy_octets, i64, octets, resize

ctypedef unsigned long long u64
ctypedef const int[::1] ints
ctypedef const long long[::1] longs

cdef Py_ssize_t MOST_BYTES, HEADER_ROOM, FIRST_ROOM, LAST_DOUBLED_ROOM, MOST_ROOM_AT_ONCE
cdef int NO_PARTITION
cdef Py_ssize_t PAIR
cdef i64 LARGEST
cdef u64 SEED, MULTIPLIER, MASK, POSITIVE


cdef inline int copy_bytes(bytearray into, Py_ssize_t at, bytes data, Py_ssize_t start, Py_ssize_t size) except -1:
    if (
        size < 0 or at < 0 or start < 0
        or size > PyByteArray_GET_SIZE(into) - at or size > PyBytes_GET_SIZE(data) - start
    ):
        raise IndexError("copy beyond the end")
    memcpy(PyByteArray_AS_STRING(into) + at, PyBytes_AS_STRING(data) + start, size)
    return 0


cdef inline const unsigned char *octets_from(octets data) except NULL:
    if data.shape[0] == 0:
        return <const unsigned char *> b""
    return &data[0]


@cython.final
cdef class RecordsBuilder:
    cdef bytearray _buffer
    cdef readonly Py_ssize_t limit
    cdef readonly bint is_closed
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t count
    cdef readonly i64 base_timestamp
    cdef readonly i64 max_timestamp

    cpdef Py_ssize_t append(self, i64 timestamp, key, value, headers=*) except -2

    cpdef close(self)

    @cython.locals(octets=bytes, at=Py_ssize_t, key_size=Py_ssize_t, value_size=Py_ssize_t)
    cdef inline Py_ssize_t add(self, i64 timestamp, bytes key, bytes value, list pairs) except -2

    @cython.locals(chosen=longs, is_chosen=bint, at=Py_ssize_t, row=Py_ssize_t)
    cpdef append_rows(self, SourceColumns columns, Py_ssize_t start, Py_ssize_t stop, rows=*)

    @cython.locals(
        keys=Strings, values=Strings, key_size=Py_ssize_t, value_size=Py_ssize_t, headers_size=Py_ssize_t,
        timestamp=i64, at=Py_ssize_t,
    )
    cdef inline bint _append_row(self, SourceColumns columns, Py_ssize_t row) except -1

    cdef inline Py_ssize_t _put_octets(self, Py_ssize_t at, bytes octets) except -1

    cdef inline Py_ssize_t _put_string(
        self, Py_ssize_t at, Strings strings, Py_ssize_t row, Py_ssize_t size
    ) except -1

    @cython.locals(number=Py_ssize_t, end=Py_ssize_t)
    cdef Py_ssize_t _put_headers(self, Py_ssize_t at, SourceColumns columns, Py_ssize_t row) except -1

    cpdef framed(self)

    @cython.locals(delta=i64, body=Py_ssize_t, needed=Py_ssize_t, at=Py_ssize_t)
    cdef inline Py_ssize_t _begin(
        self, i64 timestamp, Py_ssize_t key_size, Py_ssize_t value_size, Py_ssize_t headers_size
    ) except -2

    @cython.locals(room=Py_ssize_t, wanted=Py_ssize_t)
    cdef int _grow(self, Py_ssize_t needed) except -1

    cdef inline Py_ssize_t _end(self, i64 timestamp, Py_ssize_t at) except -2

    @cython.locals(number=u64)
    cdef inline Py_ssize_t _put(self, Py_ssize_t at, i64 value) except -1


@cython.final
cdef class Strings:
    cdef longs starts
    cdef octets data
    cdef octets valid
    cdef bint has_nulls
    cdef readonly Py_ssize_t offset
    cdef readonly Py_ssize_t count

    @cython.locals(at=Py_ssize_t, first=i64, end=i64, size=Py_ssize_t)
    cdef inline Py_ssize_t length(self, Py_ssize_t row) except -2


@cython.final
cdef class SourceColumns:
    cdef readonly Py_ssize_t count
    cdef readonly i64 timestamp
    cdef bint has_keys
    cdef bint has_values
    cdef bint has_times
    cdef bint has_headers
    cdef Strings keys
    cdef Strings values
    cdef Strings header_names
    cdef Strings header_values
    cdef longs _times
    cdef longs header_starts
    cdef longs header_ends

    cdef inline int check(self, Py_ssize_t row) except -1

    @cython.locals(number=i64)
    cdef inline i64 timestamp_of(self, Py_ssize_t row) noexcept

    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t headers_size(self, Py_ssize_t row) except -2


@cython.locals(
    chosen=ints, places="long long[::1]", numbers="long long[::1]", row=Py_ssize_t, rows=Py_ssize_t,
    partition=Py_ssize_t, first=i64, size=i64,
)
cpdef list rows_by_partition(partitions, Py_ssize_t partition_count)

cdef inline bytes octets_of(data)

@cython.locals(pairs=list)
cdef list header_octets(headers)

@cython.locals(size=Py_ssize_t, octets=bytes)
cdef Py_ssize_t header_octets_size(list pairs) except -2

@cython.locals(mask=u64, difference=u64)
cdef inline i64 minus(u64 left, u64 right) noexcept

cdef inline u64 zigzag(i64 value) noexcept

@cython.locals(number=u64, size=Py_ssize_t)
cdef inline Py_ssize_t varint_size(i64 value) noexcept

cpdef murmur2(bytes data)

cdef inline u64 hash_of(bytes data)

@cython.locals(
    end=Py_ssize_t, number=Py_ssize_t, item=object, pair=tuple, key=object, value=object, builder=RecordsBuilder
)
cpdef Py_ssize_t append_pairs(
    list pairs, Py_ssize_t at, Py_ssize_t stop, list builders, Py_ssize_t partition_count, i64 timestamp
) except -1

cdef int check_count(Py_ssize_t partition_count) except -1

@cython.locals(chosen=object, numbers="int[::1]", row=Py_ssize_t, size=Py_ssize_t, hashed=u64)
cpdef partitions_for_keys(Strings keys, Py_ssize_t partition_count)

@cython.locals(hashed=u64, k=u64, at=Py_ssize_t, end=Py_ssize_t, left=Py_ssize_t)
cdef u64 _murmur2(const unsigned char *data, Py_ssize_t start, Py_ssize_t size) noexcept
