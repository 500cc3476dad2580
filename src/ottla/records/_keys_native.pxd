# The C types of `_keys.py`, from which the module `ottla.records._keys_native` is compiled. Numbers on the way to being
# decoded are unsigned, so that cutting them to their bits is defined; bounds checks stay on.
import cython

ctypedef unsigned long long u64
ctypedef long long i64
ctypedef const unsigned char[::1] octets

@cython.locals(
    data=octets, words=u64[::1], size=Py_ssize_t, places=Py_ssize_t, at=Py_ssize_t, added=Py_ssize_t, index=Py_ssize_t,
    record_end=Py_ssize_t, length=i64, offset_delta=i64, key_size=i64, offset=i64, place=Py_ssize_t, left=u64, right=u64,
    v0=u64, v1=u64, v2=u64, v3=u64, mask=u64,
)
cpdef put_keys(table, u64 first_secret, u64 second_secret, bytes records, Py_ssize_t count, i64 base_offset, i64 start_offset)

@cython.locals(
    data=octets, words=u64[::1], size=Py_ssize_t, places=Py_ssize_t, at=Py_ssize_t, index=Py_ssize_t, kept=Py_ssize_t,
    tombstones=Py_ssize_t, largest=i64, stays=bytearray, flags="unsigned char[::1]", stretches=list, stretch_end=Py_ssize_t,
    start=Py_ssize_t, record_end=Py_ssize_t, length=i64, timestamp_delta=i64, offset_delta=i64, key_size=i64,
    value_size=i64, key_at=Py_ssize_t, offset=i64, stay=bint, v0=u64, v1=u64, v2=u64, v3=u64, mask=u64,
)
cpdef sieve(
    table, u64 first_secret, u64 second_secret, bytes records, Py_ssize_t count, i64 base_offset, i64 latest_offset,
    bint expired,
)

@cython.locals(v0=u64, v1=u64, v2=u64, v3=u64, mask=u64)
cpdef digest(bytes key, u64 first_secret, u64 second_secret)

@cython.locals(left=u64, right=u64, place=Py_ssize_t, newest=i64)
cdef inline i64 _newest(
    u64[::1] words, Py_ssize_t places, octets data, Py_ssize_t at, Py_ssize_t size, u64 v0, u64 v1, u64 v2, u64 v3,
    u64 mask
) noexcept

cdef inline int _take_stretch(list stretches, Py_ssize_t start, Py_ssize_t end, bint goes_on) except -1

cdef inline Py_ssize_t _behind_key(Py_ssize_t at, i64 key_size, Py_ssize_t end) noexcept

cdef (u64, u64, u64, u64) _first_state(u64 first_secret, u64 second_secret)

@cython.locals(place=u64)
cdef inline Py_ssize_t _find(u64[::1] words, u64 places, u64 left, u64 right) noexcept

@cython.locals(end=Py_ssize_t, word=u64, left=u64)
cdef (u64, u64) _digest(
    octets data, Py_ssize_t at, Py_ssize_t size, u64 v0, u64 v1, u64 v2, u64 v3, u64 mask
) noexcept

@cython.locals(word=u64, index=Py_ssize_t, byte=u64)
cdef inline u64 _word(octets data, Py_ssize_t at, Py_ssize_t size) noexcept

@cython.locals(low=u64)
cdef inline u64 _length_byte(u64 size) noexcept

@cython.locals(_=int)
cdef inline (u64, u64, u64, u64) _rounds(u64 v0, u64 v1, u64 v2, u64 v3, int count, u64 mask) noexcept

@cython.locals(number=u64, shift=int, byte=u64)
cdef inline (i64, Py_ssize_t) _varint(octets data, Py_ssize_t at, Py_ssize_t size) noexcept

@cython.locals(byte=int)
cdef inline Py_ssize_t _skip_varint(octets data, Py_ssize_t at, Py_ssize_t size) noexcept
