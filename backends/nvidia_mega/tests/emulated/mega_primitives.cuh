// The primitives of this package on a CPU. Whoever looks for what another block hands
// over gives way to it, and each look takes a microsecond of a clock that nothing else
// moves.
#pragma once
#include "primitives.cuh"

namespace emulated {

constexpr unsigned kLookNs = 1000;
inline unsigned long long clock_ns;

}  // namespace emulated

typedef unsigned long long Word;

inline void hand_over(Word* to, Word word) {
    emulated::give_way();
    *to = word;
}

inline Word look_at(const Word* from, bool is_wanted) {
    emulated::give_way();
    emulated::clock_ns += emulated::kLookNs;
    return is_wanted ? *from : 0;
}

inline int look_at_flag(const int* from) { return *from; }
inline void raise_flag(int* to) { *to = 1; }
inline unsigned acquire(const unsigned* from) { return *from; }
inline void release(unsigned* to, unsigned value) { *to = value; }
inline unsigned long long nanoseconds() { return emulated::clock_ns; }
inline void fetch_ahead(const void*) {}

inline void put_off(uint4& bits, unsigned zero) {
    bits = {bits.x ^ zero, bits.y ^ zero, bits.z ^ zero, bits.w ^ zero};
}
