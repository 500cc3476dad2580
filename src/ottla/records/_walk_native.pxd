# The C types of `_walk.py`, from which the module `ottla.records._walk_native` is compiled. Numbers on the way to being
# decoded are unsigned, so that cutting them to their bits is defined; bounds checks stay on.
import cython

ctypedef unsigned long long u64
ctypedef long long i64


@cython.final
cdef class Cursor:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t size
    cdef Py_ssize_t at

    @cython.locals(at=Py_ssize_t, number=u64, mask=u64)
    cdef inline i64 varint(self) noexcept

    @cython.locals(number=u64)
    cdef inline i64 varlong(self) noexcept

    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, number=u64, byte=u64, mask=u64, shift=int)
    cdef inline u64 _long_number(self, int most_bytes) noexcept

    @cython.locals(length=i64, count=i64)
    cdef inline void skip_value_and_headers(self) noexcept


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

@cython.locals(total=u64, mask=u64)
cdef i64 _plus(u64 left, u64 right) noexcept
