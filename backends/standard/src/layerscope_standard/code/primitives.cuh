// What the kernels need of the machine below CUDA C++. Tests on a CPU put an emulation
// of this file in its place, so nothing else may hold assembly.
//
// Loads are volatile: the compiler must not move them before a wait.
#pragma once

typedef unsigned short bf16;  // its bits

#define kInfinity __int_as_float(0x7f800000)

// Stock programmatic launch: wait at entry, before anything that others write is read;
// trigger at the end. Without the launch attribute both do nothing.
__device__ __forceinline__ void wait_for_predecessor() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void trigger_dependents() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Some bits of the time and of the processor's clock, which differ from run to run.
__device__ __forceinline__ unsigned noise() {
    unsigned time, clock;
    asm volatile("mov.u32 %0, %globaltimer_lo;" : "=r"(time));
    asm volatile("mov.u32 %0, %clock;" : "=r"(clock));
    return time ^ clock << 16;
}

// Stays for a time up to twice `ns`.
__device__ __forceinline__ void pause(unsigned ns) {
    asm volatile("nanosleep.u32 %0;" :: "r"(ns) : "memory");
}

// Of what no kernel writes: 16, 8 or 4 bytes; zeros where they are not there. Not
// `ld.global.nc`: the assembler moves such loads behind `griddepcontrol.wait`.
__device__ __forceinline__ uint4 load_constant(const void* from, bool is_there) {
    uint4 got;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %5, 0;\n"
        "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n"
        "@p ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "=&r"(got.x), "=&r"(got.y), "=&r"(got.z), "=&r"(got.w)
        : "l"(from), "r"((int)is_there));
    return got;
}

__device__ __forceinline__ uint2 load_constant_pair(const void* from, bool is_there) {
    uint2 got;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %3, 0; mov.u32 %0, 0; mov.u32 %1, 0;\n"
        "@p ld.global.v2.u32 {%0, %1}, [%2]; }"
        : "=&r"(got.x), "=&r"(got.y) : "l"(from), "r"((int)is_there));
    return got;
}

__device__ __forceinline__ float load_constant_float(const float* from, bool is_there) {
    float got;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.f32 %0, 0f00000000;\n"
        "@p ld.global.f32 %0, [%1]; }"
        : "=&f"(got) : "l"(from), "r"((int)is_there));
    return got;
}

__device__ __forceinline__ int load_constant_int(const int* from) {
    int got;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(got) : "l"(from));
    return got;
}

// What kernels before this one wrote: past the first-level cache, which may hold an old
// line where this kernel has started early.
__device__ __forceinline__ uint4 load_handed(const void* from, bool is_there) {
    uint4 got;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %5, 0;\n"
        "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n"
        "@p ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "=&r"(got.x), "=&r"(got.y), "=&r"(got.z), "=&r"(got.w)
        : "l"(from), "r"((int)is_there));
    return got;
}

__device__ __forceinline__ uint2 load_handed_pair(const void* from, bool is_there) {
    uint2 got;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %3, 0; mov.u32 %0, 0; mov.u32 %1, 0;\n"
        "@p ld.global.cg.v2.u32 {%0, %1}, [%2]; }"
        : "=&r"(got.x), "=&r"(got.y) : "l"(from), "r"((int)is_there));
    return got;
}

__device__ __forceinline__ float load_handed_float(const float* from, bool is_there) {
    float got;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.f32 %0, 0f00000000;\n"
        "@p ld.global.cg.f32 %0, [%1]; }"
        : "=&f"(got) : "l"(from), "r"((int)is_there));
    return got;
}

__device__ __forceinline__ int load_handed_int(const int* from) {
    int got;
    asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(got) : "l"(from));
    return got;
}

__device__ __forceinline__ bf16 load_handed_half(const bf16* from) {
    bf16 got;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(got) : "l"(from));
    return got;
}

__device__ __forceinline__ long long load_handed_long(const long long* from) {
    long long got;
    asm volatile("ld.global.cg.s64 %0, [%1];" : "=l"(got) : "l"(from));
    return got;
}

// d[16 x 8] += a[16 x 16] b[16 x 8] by one warp. Of thread 4 g + t, with pairs along k:
// a0 row g, a1 row g + 8, both k 2t; a2, a3 the same at k 2t + 8; b0 column g at k 2t,
// b1 at 2t + 8; d0, d1 row g, columns 2t and 2t + 1; d2, d3 those of row g + 8.
__device__ __forceinline__ void multiply(
        float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
        unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Two floats as bf16, rounded to nearest even; the first in the low half.
__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// Two bf16 times two others.
__device__ __forceinline__ unsigned multiply_pairs(unsigned a, unsigned b) {
    unsigned product;
    asm("mul.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

__device__ __forceinline__ float power_of_two(float exponent) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
    return power;
}

// Starts to copy 16 bytes into shared memory, or to fill them with zeros.
__device__ __forceinline__ void copy(void* to, const void* from, bool is_there) {
    const unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

__device__ __forceinline__ void close_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the last `open` groups of this thread's copies are there.
template <int open>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" :: "n"(open) : "memory");
}

// Four 8 x 8 matrices of bf16, transposed. Thread 8 m + r names row r of matrix m;
// thread 4 g + t gets column g, rows 2t and 2t + 1, of each.
__device__ __forceinline__ void load_transposed(unsigned (&got)[4], const void* row) {
    const unsigned shared = (unsigned)__cvta_generic_to_shared(row);
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(got[0]), "=r"(got[1]), "=r"(got[2]), "=r"(got[3])
        : "r"(shared) : "memory");
}

// A barrier of `threads` threads of the block; number 0 is __syncthreads.
__device__ __forceinline__ void meet(int number, int threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(number), "r"(threads) : "memory");
}

// Dynamic shared memory of a block.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
