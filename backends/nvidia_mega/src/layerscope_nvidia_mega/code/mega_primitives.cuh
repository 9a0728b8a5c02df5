// What the kernels of this package need of the machine beside the primitives of the
// standard chain: how blocks that run at the same time hand something to each other.
// Tests on a CPU put an emulation in its place.
#pragma once
#include "primitives.cuh"

typedef unsigned long long Word;

// To blocks that look at it; it is there as a whole or not at all.
__device__ __forceinline__ void hand_over(Word* to, Word word) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;"
                 :: "l"(to), "l"(word) : "memory");
}

// What is there by now, or 0 where it is not wanted.
__device__ __forceinline__ Word look_at(const Word* from, bool is_wanted) {
    Word got;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.u64 %0, 0;\n"
        "@p ld.relaxed.gpu.global.u64 %0, [%1]; }"
        : "=&l"(got) : "l"(from), "r"((int)is_wanted) : "memory");
    return got;
}

__device__ __forceinline__ int look_at_flag(const int* from) {
    int got;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];"
                 : "=r"(got) : "l"(from) : "memory");
    return got;
}

__device__ __forceinline__ void raise_flag(int* to) {
    asm volatile("st.relaxed.gpu.global.s32 [%0], 1;" :: "l"(to) : "memory");
}

// Who acquires what was released sees all that was there before it was.
__device__ __forceinline__ unsigned acquire(const unsigned* from) {
    unsigned got;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(got) : "l"(from) : "memory");
    return got;
}

__device__ __forceinline__ void release(unsigned* to, unsigned value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;"
                 :: "l"(to), "r"(value) : "memory");
}

// Of a clock that all processors share.
__device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now) :: "memory");
    return now;
}

// Lets the line of 128 bytes come to the second-level cache.
__device__ __forceinline__ void fetch_ahead(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" :: "l"(from));
}

// The same bits once `zero`, which is 0, is known. Whatever is done with them is done
// after that, so that nobody waits for them before.
__device__ __forceinline__ void put_off(uint4& bits, unsigned zero) {
    asm volatile("xor.b32 %0, %0, %4; xor.b32 %1, %1, %4;\n"
                 "xor.b32 %2, %2, %4; xor.b32 %3, %3, %4;"
                 : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w) : "r"(zero));
}
