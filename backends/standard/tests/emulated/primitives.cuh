// The kernels' primitives on a CPU: threads of a block are coroutines that give way to
// each other at barriers and at operations of a warp. Blocks run one after another, but
// those of a cooperative launch together; their kernels must have all shared memory dynamic.
//
// Asynchronous copies happen when they are waited for, shared memory begins as NaN, and
// a barrier that not all threads reach ends the run with an error, so that what a GPU
// might forgive is found here.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

typedef unsigned short bf16;

#define kInfinity INFINITY

struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }

struct Index { unsigned x, y, z; };
inline Index gridDim, blockDim, blockIdx, threadIdx;

namespace emulated {

#ifdef TOGETHER
constexpr unsigned kTogetherBlocks = TOGETHER;
#else
constexpr unsigned kTogetherBlocks = 1;
#endif
constexpr int kLanes = 32, kStackWords = 16 << 10, kBarriers = 16;
constexpr size_t kSharedBytes = 256 << 10;

struct Barrier {
    int arrived = 0;
    unsigned passed = 0;
};

struct Slot {
    unsigned words[4];
    float a[8], b[4];  // operands of an MMA
};

struct Warp {
    Barrier barrier;
    Slot slots[2][kLanes];
};

struct Block {
    Index index;
    Barrier barriers[kBarriers];
    alignas(128) unsigned char dynamic[kSharedBytes];
};

struct Thread {
    void* stack_pointer = nullptr;
    std::unique_ptr<std::uint64_t[]> stack{new std::uint64_t[kStackWords]};
    unsigned index = 0, block = 0, operations = 0;  // index in the block
    bool is_done = false;
    const unsigned* waits_for = nullptr;
    unsigned passed = 0;
    std::vector<std::function<void()>> open;
    std::deque<std::vector<std::function<void()>>> closed;
};

inline std::vector<Thread> threads;
inline std::vector<Warp> warps;
inline std::vector<Block> blocks;
inline Thread* current;
inline void* scheduler;
inline std::function<void()> kernel;

// Keeps the registers that a call keeps, and goes on on another stack.
extern "C" void emulated_switch(void** kept, void* next);
asm(R"(
.text
emulated_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
)");

inline void give_way() { emulated_switch(&current->stack_pointer, scheduler); }

inline void arrive(Barrier& barrier, int count) {
    const unsigned passed = barrier.passed;
    if (++barrier.arrived == count) {
        barrier.arrived = 0;
        ++barrier.passed;
        return;
    }
    current->waits_for = &barrier.passed;
    current->passed = passed;
    give_way();
}

inline void enter() {
    kernel();
    current->is_done = true;
    give_way();
}

inline Block& own_block() { return blocks[current->block]; }

// What all lanes of the warp put in. A lane is at most one operation ahead of another,
// so two sets of slots are enough.
inline const Slot* exchange(const Slot& own) {
    Warp& warp = warps[(current - threads.data()) / kLanes];
    Slot* slots = warp.slots[current->operations++ % 2];
    slots[current->index % kLanes] = own;
    arrive(warp.barrier, kLanes);
    return slots;
}

inline bool run_blocks() {
    for (Block& block : blocks) {
        std::memset(block.dynamic, 0xff, sizeof block.dynamic);
        for (Barrier& barrier : block.barriers) barrier = {};
    }
    for (Warp& warp : warps) warp.barrier = {};
    for (Thread& thread : threads) {
        thread.operations = 0;
        thread.is_done = false;
        thread.waits_for = nullptr;
        thread.open.clear();
        thread.closed.clear();
        auto top = (std::uint64_t*)((std::uintptr_t)(thread.stack.get() + kStackWords) & ~15ul);
        *--top = 0;
        *--top = (std::uint64_t)enter;
        thread.stack_pointer = top - 6;  // registers, whatever they are
    }
    size_t done = 0;
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (Thread& thread : threads) {
            if (thread.is_done) continue;
            if (thread.waits_for && *thread.waits_for == thread.passed) continue;
            thread.waits_for = nullptr;
            has_moved = true;
            current = &thread;
            threadIdx = {thread.index, 0, 0};
            blockIdx = blocks[thread.block].index;
            emulated_switch(&scheduler, thread.stack_pointer);
            done += thread.is_done;
        }
    }
    return done == threads.size();
}

template <class Argument>
Argument argument(std::uint64_t slot) {
    Argument value;
    std::memcpy(&value, &slot, sizeof value);
    return value;
}

template <class... Arguments, size_t... Number>
int run(void (*function)(Arguments...), const unsigned* grid, unsigned block,
        const std::uint64_t* slots, std::index_sequence<Number...>) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block, 1, 1};
    blocks = std::vector<Block>(kTogetherBlocks);
    threads = std::vector<Thread>(kTogetherBlocks * block);
    for (unsigned i = 0; i < kTogetherBlocks * block; ++i) {
        threads[i].index = i % block;
        threads[i].block = i / block;
    }
    warps = std::vector<Warp>((kTogetherBlocks * block + kLanes - 1) / kLanes);
    kernel = [=] { function(argument<Arguments>(slots[Number])...); };
    for (unsigned z = 0; z < grid[2]; ++z)
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; x < grid[0]; x += kTogetherBlocks) {
                for (unsigned i = 0; i < kTogetherBlocks; ++i) blocks[i].index = {x + i, y, z};
                if (!run_blocks()) return 1;
            }
    return 0;
}

// 0, or 1 where threads of a block wait for others that never come.
template <class... Arguments>
int run(void (*function)(Arguments...), const unsigned* grid, unsigned block,
        const std::uint64_t* slots) {
    return run(function, grid, block, slots, std::index_sequence_for<Arguments...>());
}

inline float widen_bf16(unsigned bits) {
    bits <<= 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned narrow_bf16(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (std::isnan(value)) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline float float16_of(unsigned pair, int high) {
    const unsigned bits = high ? pair >> 16 : pair & 0xffff;
    const int exponent = bits >> 10 & 31;
    const float fraction = (bits & 1023) | (exponent ? 1024 : 0);
    const float value = exponent < 31    ? std::ldexp(fraction, std::max(exponent, 1) - 25)
                        : bits & 1023 ? NAN : INFINITY;
    return bits & 0x8000 ? -value : value;
}

inline unsigned narrow_float16(float value) {
    if (std::isnan(value)) return 0x7fff;
    const unsigned sign = std::signbit(value) ? 0x8000 : 0;
    const float most = std::abs(value);
    if (most >= 65520.0f) return sign | 0x7c00;
    const int exponent = most < 0x1p-14f ? -14 : std::ilogb(most);
    // In units of the last place; to nearest even, and the carry goes to the exponent.
    const auto units = (unsigned)std::nearbyint(std::ldexp(most, 10 - exponent));
    return sign | (((unsigned)(exponent + 14) << 10) + units);
}

inline float half_of(unsigned pair, int high) {
    return widen_bf16(high ? pair >> 16 : pair & 0xffff);
}

}  // namespace emulated

inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

using std::max;
using std::min;
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline void __threadfence() {}
inline void __syncthreads() { emulated::arrive(emulated::own_block().barriers[0], blockDim.x); }
inline void __syncwarp() { emulated::exchange({}); }

inline unsigned atomicAdd(unsigned* to, unsigned more) {
    const unsigned before = *to;
    *to += more;
    return before;
}

inline unsigned atomicOr(unsigned* to, unsigned bits) {
    const unsigned before = *to;
    *to |= bits;
    return before;
}

template <class Value>
Value __shfl_sync(unsigned, Value value, int lane) {
    emulated::Slot own = {};
    std::memcpy(own.words, &value, sizeof value);
    const emulated::Slot* all = emulated::exchange(own);
    std::memcpy(&value, all[lane].words, sizeof value);
    return value;
}

template <class Value>
Value __shfl_xor_sync(unsigned mask, Value value, int bits) {
    return __shfl_sync(mask, value, (threadIdx.x % 32) ^ bits);
}

inline unsigned __ballot_sync(unsigned, bool vote) {
    const emulated::Slot* all = emulated::exchange({{vote}});
    unsigned votes = 0;
    for (int lane = 0; lane < 32; ++lane) votes |= all[lane].words[0] << lane;
    return votes;
}

inline unsigned __reduce_max_sync(unsigned, unsigned value) {
    const emulated::Slot* all = emulated::exchange({{value}});
    for (int lane = 0; lane < 32; ++lane) value = max(value, all[lane].words[0]);
    return value;
}

inline unsigned __reduce_min_sync(unsigned, unsigned value) {
    const emulated::Slot* all = emulated::exchange({{value}});
    for (int lane = 0; lane < 32; ++lane) value = min(value, all[lane].words[0]);
    return value;
}

inline void wait_for_predecessor() {}
inline void trigger_dependents() {}

inline unsigned noise() {
    static unsigned state = 1;
    return state = state * 1664525u + 1013904223u;
}

// Lets up to three rounds of the other threads pass.
inline void pause(unsigned ns) {
    for (unsigned round = 0; round < ns % 4; ++round) emulated::give_way();
}

template <class Value>
Value loaded(const void* from, bool is_there = true) {
    Value value = {};
    if (!is_there) return value;
    if ((std::uintptr_t)from % sizeof(Value)) {
        std::fprintf(stderr, "a load of %zu bytes is not aligned\n", sizeof(Value));
        std::abort();
    }
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline uint4 load_constant(const void* from, bool is) { return loaded<uint4>(from, is); }
inline uint4 load_handed(const void* from, bool is) { return loaded<uint4>(from, is); }
inline uint2 load_constant_pair(const void* from, bool is) {
    return loaded<uint2>(from, is);
}
inline uint2 load_handed_pair(const void* from, bool is) {
    return loaded<uint2>(from, is);
}
inline float load_constant_float(const float* from, bool is) {
    return loaded<float>(from, is);
}
inline float load_handed_float(const float* from, bool is) {
    return loaded<float>(from, is);
}
inline int load_constant_int(const int* from) { return *from; }
inline int load_handed_int(const int* from) { return *from; }
inline bf16 load_handed_half(const bf16* from) { return *from; }
inline long long load_handed_long(const long long* from) { return *from; }

namespace emulated {

// `half_of` tells the value of a half of a register.
template <float (*half_of)(unsigned, int)>
void multiply(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
              unsigned b0, unsigned b1) {
    const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    emulated::Slot own = {};
    for (int i = 0; i < 8; ++i) own.a[i] = half_of(a[i / 2], i % 2);
    for (int i = 0; i < 4; ++i) own.b[i] = half_of(b[i / 2], i % 2);
    const emulated::Slot* all = emulated::exchange(own);
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 4; ++i) {
        const int high_row = i / 2, column = 2 * t + i % 2;
        for (int k = 0; k < 16; ++k) {
            const int pair = k % 8 / 2, late = k / 8;
            d[i] += all[4 * g + pair].a[4 * late + 2 * high_row + k % 2] *
                    all[4 * column + pair].b[2 * late + k % 2];
        }
    }
}

}  // namespace emulated

inline void multiply(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                     unsigned b0, unsigned b1) {
    emulated::multiply<emulated::half_of>(d, a0, a1, a2, a3, b0, b1);
}

inline unsigned pack(float low, float high) {
    return emulated::narrow_bf16(low) | emulated::narrow_bf16(high) << 16;
}

inline unsigned multiply_pairs(unsigned a, unsigned b) {
    using emulated::half_of;
    return pack(half_of(a, 0) * half_of(b, 0), half_of(a, 1) * half_of(b, 1));
}

inline float power_of_two(float exponent) { return std::exp2(exponent); }

inline void copy(void* to, const void* from, bool is_there) {
    emulated::current->open.push_back([=] {
        const uint4 value = loaded<uint4>(from, is_there);
        std::memcpy(to, &value, sizeof value);
    });
}

inline void close_copies() {
    emulated::Thread& thread = *emulated::current;
    thread.closed.push_back(std::move(thread.open));
    thread.open.clear();
}

template <int open>
void wait_for_copies() {
    auto& closed = emulated::current->closed;
    while ((int)closed.size() > open) {
        for (auto& each : closed.front()) each();
        closed.pop_front();
    }
}

inline void load_transposed(unsigned (&got)[4], const void* row) {
    emulated::Slot own = {};
    std::memcpy(own.words, &row, sizeof row);
    const emulated::Slot* all = emulated::exchange(own);
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int matrix = 0; matrix < 4; ++matrix) {
        unsigned halves[2];
        for (int i = 0; i < 2; ++i) {
            const bf16* from;
            std::memcpy(&from, all[8 * matrix + 2 * t + i].words, sizeof from);
            halves[i] = from[g];
        }
        got[matrix] = halves[0] | halves[1] << 16;
    }
}

inline void meet(int number, int count) {
    emulated::arrive(emulated::own_block().barriers[number], count);
}

#define DYNAMIC_SHARED(name) unsigned char* name = emulated::own_block().dynamic
