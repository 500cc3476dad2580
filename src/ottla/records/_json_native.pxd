# The C types of `_json.py`, from which the module `ottla.records._json_native` is compiled. Bounds checks stay on.
import cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy
from ottla.records.octets cimport copy_octets, i64, octets, octets_of, put_int, put_long, resize


cdef extern from "Python.h":
    double PyOS_string_to_double(const char *s, char **endptr, void *overflow_exception) except? -1.0


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #ifdef __SSE2__
    #include <emmintrin.h>
    #endif
    /* Where the first byte is that ends a stretch of plain characters in a JSON string: a quote, a backslash, a control
       character. Sixteen bytes at a time where there are such registers; then eight: in each mask the lowest bit that
       is set is right (those above it may be carried), so the lowest bit of all three is, too. */
    static inline Py_ssize_t ottla_text_end(const unsigned char *data, Py_ssize_t at, Py_ssize_t end) {
    #ifdef __SSE2__
        const __m128i quotes = _mm_set1_epi8('"'), backslashes = _mm_set1_epi8('\\\\'), last = _mm_set1_epi8(0x1f);
        while (end - at >= 16) {
            __m128i some = _mm_loadu_si128((const __m128i *) (data + at));
            __m128i special = _mm_or_si128(_mm_cmpeq_epi8(some, quotes), _mm_cmpeq_epi8(some, backslashes));
            int found = _mm_movemask_epi8(_mm_or_si128(special, _mm_cmpeq_epi8(_mm_max_epu8(some, last), last)));
            if (found)
                return at + __builtin_ctz(found);
            at += 16;
        }
    #endif
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        const uint64_t ones = 0x0101010101010101ULL, tops = 0x8080808080808080ULL;
        while (end - at >= 8) {
            uint64_t word, quote, backslash, found;
            memcpy(&word, data + at, 8);
            quote = word ^ (ones * '"');
            backslash = word ^ (ones * '\\\\');
            found = (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - ones * 0x20) & ~word)) & tops;
            if (found)
                return at + (__builtin_ctzll(found) >> 3);
            at += 8;
        }
    #endif
        while (at < end && data[at] != '"' && data[at] != '\\\\' && data[at] >= 0x20)
            at++;
        return at;
    }

    /* Whether a short word is at `data`, without the call that memcmp is. */
    static inline int ottla_is_same(const char *word, const unsigned char *data, Py_ssize_t size) {
        while (size >= 8) {
            uint64_t one, other;
            memcpy(&one, word, 8);
            memcpy(&other, data, 8);
            if (one != other)
                return 0;
            word += 8, data += 8, size -= 8;
        }
        if (size >= 4) {
            uint32_t one, other;
            memcpy(&one, word, 4);
            memcpy(&other, data, 4);
            if (one != other)
                return 0;
            word += 4, data += 4, size -= 4;
        }
        for (; size > 0; size--)
            if ((unsigned char) *word++ != *data++)
                return 0;
        return 1;
    }
    """
    Py_ssize_t ottla_text_end(const unsigned char *data, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    bint ottla_is_same(const char *word, const unsigned char *data, Py_ssize_t size) noexcept nogil


ctypedef unsigned long long u64

cdef int TEXT, LONG, DOUBLE, BOOLEAN, NUMBER, OBJECT, LIST, DECIMAL
cdef int NO_CHILD, REFUSED, DEEPEST, MOST_DIGITS, EXACT_POWER, MOST_EXPONENT, MOST_PLACES
cdef Py_ssize_t MOST_NAMES, MOST_OCTETS, FIRST_ROOM
cdef u64 EXACT, LARGEST, SMALLEST_MAGNITUDE
cdef unsigned char QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, POINT, ZERO, NINE
cdef unsigned char OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST
cdef unsigned char LOWER_E, UPPER_E, LOWER_U, LOWER_T, LOWER_F, LOWER_N
cdef unsigned char LOWER_A, UPPER_A, LOWER_B, LOWER_R, SLASH
cdef unsigned char SPACE, TAB, LINE_FEED, CARRIAGE_RETURN, BACKSPACE, FORM_FEED


cdef inline Py_ssize_t text_end(octets data, Py_ssize_t at, Py_ssize_t end) except -1:
    if at < 0 or end > data.shape[0]:
        raise IndexError("a text beyond the end")
    if at >= end:
        return at
    return ottla_text_end(&data[0], at, end)


cdef inline double double_of(octets data, Py_ssize_t at, Py_ssize_t size) except? -1.0:
    cdef bytes text = octets_of(data, at, size)
    return PyOS_string_to_double(text, NULL, NULL)


cdef inline bint is_same(bytes word, octets data, Py_ssize_t at, Py_ssize_t size) except -1:
    if size != PyBytes_GET_SIZE(word):
        return False
    if at < 0 or size > data.shape[0] - at:
        raise IndexError("a word beyond the end")
    return size == 0 or ottla_is_same(PyBytes_AS_STRING(word), &data[at], size)


cdef inline int put_double(bytearray into, Py_ssize_t index, double number) except -1:
    if index < 0 or index >= PyByteArray_GET_SIZE(into) >> 3:
        raise IndexError("a number beyond the end")
    memcpy(PyByteArray_AS_STRING(into) + 8 * index, &number, 8)
    return 0


@cython.final
cdef class JsonColumn:
    cdef readonly int kind
    cdef readonly list children
    cdef dict names
    cdef list order
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t nulls
    cdef readonly Py_ssize_t used
    cdef readonly bytearray valid
    cdef readonly bytearray ends
    cdef readonly bytearray data

    @cython.locals(row=Py_ssize_t, kind=int)
    cdef inline int begin_row(self) except -1

    @cython.locals(row=Py_ssize_t, kind=int, child=JsonColumn)
    cdef int put_null(self) except -1

    @cython.locals(row=Py_ssize_t)
    cdef inline int end_row(self) except -1

    cdef inline int put_long_number(self, i64 number) except -1

    cdef inline int put_double_number(self, double number) except -1

    cdef inline int put_boolean(self, bint value) except -1

    cdef inline int add_octets(self, octets source, Py_ssize_t at, Py_ssize_t size) except -1

    cdef inline int add_octet(self, unsigned char octet) except -1

    @cython.locals(room=Py_ssize_t)
    cdef inline int _room_for_octets(self, Py_ssize_t size) except -1

    cdef inline int end_text(self) except -1


@cython.final
cdef class JsonReader:
    cdef JsonColumn root
    cdef const double[::1] powers
    cdef const unsigned char[::1] data
    cdef Py_ssize_t end
    cdef Py_ssize_t next
    cdef u64 mantissa
    cdef Py_ssize_t digits
    cdef Py_ssize_t exponent
    cdef bint is_whole
    cdef bint is_over

    @cython.locals(ends="const int[::1]", size=Py_ssize_t, index=Py_ssize_t, at=Py_ssize_t)
    cpdef Py_ssize_t read(self, data, offsets, Py_ssize_t first, Py_ssize_t count) except -1

    @cython.locals(end=Py_ssize_t, byte="unsigned char")
    cdef inline Py_ssize_t _skip_space(self, Py_ssize_t at) except -2

    @cython.locals(end=Py_ssize_t, place=Py_ssize_t, index=Py_ssize_t, child=JsonColumn)
    cdef Py_ssize_t _object(self, JsonColumn column, Py_ssize_t at) except -2

    @cython.locals(byte="unsigned char")
    cdef inline Py_ssize_t _behind_member(self, Py_ssize_t at, unsigned char closing) except -2

    @cython.locals(children=list, index=Py_ssize_t, child=JsonColumn)
    cdef inline int _end_object(self, JsonColumn column) except -1

    @cython.locals(order=list, known=bytes, name=bytes, end=Py_ssize_t)
    cdef inline Py_ssize_t _child(self, JsonColumn column, Py_ssize_t place, Py_ssize_t at) except -3

    @cython.locals(byte="unsigned char", kind=int)
    cdef Py_ssize_t _value(self, JsonColumn column, Py_ssize_t at) except -2

    cdef inline Py_ssize_t _boolean(self, JsonColumn column, Py_ssize_t at, unsigned char byte) except -2

    cdef inline bint _is_word(self, Py_ssize_t at, bytes word) except -1

    @cython.locals(end=Py_ssize_t, child=JsonColumn)
    cdef Py_ssize_t _list(self, JsonColumn column, Py_ssize_t at) except -2

    @cython.locals(end=Py_ssize_t, kind=int, is_negative=bint)
    cdef Py_ssize_t _number_of(self, JsonColumn column, Py_ssize_t at) except -2

    @cython.locals(exponent=Py_ssize_t, number=double)
    cdef inline Py_ssize_t _double(self, JsonColumn column, Py_ssize_t at, Py_ssize_t end, bint is_negative) except -2

    @cython.locals(end=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t _number(self, Py_ssize_t at) except -2

    @cython.locals(end=Py_ssize_t, byte="unsigned char")
    cdef inline Py_ssize_t _digits(self, Py_ssize_t at) except -2

    @cython.locals(end=Py_ssize_t, start=Py_ssize_t, is_negative=bint, exponent=Py_ssize_t, byte="unsigned char")
    cdef Py_ssize_t _exponent(self, Py_ssize_t at) except -2

    @cython.locals(end=Py_ssize_t, start=Py_ssize_t, code_point=Py_ssize_t)
    cdef Py_ssize_t _text(self, JsonColumn column, Py_ssize_t at) except -2

    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t _skip_text(self, Py_ssize_t at) except -2

    @cython.locals(byte="unsigned char", high=Py_ssize_t, low=Py_ssize_t)
    cdef Py_ssize_t _escape(self, Py_ssize_t at) except -2

    @cython.locals(number=Py_ssize_t, place=Py_ssize_t, byte="unsigned char", digit=Py_ssize_t)
    cdef Py_ssize_t _hexadecimal(self, Py_ssize_t at) except -2

    @cython.locals(byte="unsigned char")
    cdef Py_ssize_t _pass_over(self, Py_ssize_t at, int depth) except -2

    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t _pass_over_members(self, Py_ssize_t at, int depth, unsigned char closing) except -2


cdef int add_code_point(JsonColumn column, Py_ssize_t code_point) except -1
