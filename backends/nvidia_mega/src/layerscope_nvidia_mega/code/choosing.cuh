// From a row's logits, in the registers of a warp, to its experts, and from masks of rows
// to the table of experts. Bit for bit what top_k and align give.
#pragma once
#include "table.cuh"

constexpr int kOwn = LANE_EXPERTS;  // experts of a thread: lane, lane + 32, ...
constexpr unsigned kSign = 0x80000000u;
constexpr unsigned kAll = 0xffffffffu;

// In the order of the floats, where zeros of both signs are one; zero is below them all.
__device__ __forceinline__ unsigned key_of(float value) {
    const unsigned bits = __float_as_uint(value + 0.0f);
    return bits & kSign ? ~bits : bits | kSign;
}

__device__ __forceinline__ float value_of(unsigned key) {
    return __uint_as_float(key & kSign ? key & ~kSign : ~key);
}

struct Chosen {
    int id;
    float weight;
};

// Of lane p: the expert in place p and its weight, where there is such a place.
__device__ __forceinline__ Chosen choose(
        const float (&logits)[kOwn], int experts, int top_k, bool normalise) {
    const int lane = threadIdx.x % 32;
    unsigned keys[kOwn], best = 0, chosen = 0, greatest = 0;
    int id = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
        keys[i] = 32 * i + lane < experts ? key_of(logits[i]) : 0;
#pragma unroll 1
    for (int place = 0; place < top_k; ++place) {
        unsigned own = keys[0], at = kAll;
#pragma unroll
        for (int i = 1; i < kOwn; ++i) own = max(own, keys[i]);
        best = __reduce_max_sync(kAll, own);
#pragma unroll
        for (int i = kOwn - 1; i >= 0; --i)
            if (keys[i] == best) at = 32 * i + lane;
        at = __reduce_min_sync(kAll, at);
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            if (32 * i + lane == at) keys[i] = 0;
        if (place == 0) greatest = best;
        if (lane == place) {
            id = at;
            chosen = best;
        }
    }
    // Sums in the order of top_k: of the places, or of the experts where they count.
    const float most = value_of(greatest);
    const float share = lane < top_k ? expf(value_of(chosen) - most) : 0.0f;
    float all = 0.0f;
    if (normalise) {
        for (int place = 0; place < top_k; ++place)
            all += __shfl_sync(kAll, share, place);
    } else {
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            all += 32 * i + lane < experts ? expf(logits[i] - most) : 0.0f;
#pragma unroll
        for (int mask = 16; mask; mask /= 2) all += __shfl_xor_sync(kAll, all, mask);
    }
    return {id, share / all};
}

// Writes what a row has in the table; a warp a row. `masks` of each expert: a bit a row,
// in shared memory.
__device__ __forceinline__ void fill_table(
        const unsigned* masks, int* table, int id, int row, int top_k) {
    const int lane = threadIdx.x % 32;
    int slot = 0, used = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const unsigned have = __ballot_sync(kAll, masks[32 * i + lane] != 0);
        if (i == id / 32) slot = used + __popc(have & ((1u << id % 32) - 1));
        used += __popc(have);
    }
    if (threadIdx.x == 0) table[0] = used;
    if (lane >= top_k) return;
    const unsigned mask = masks[id];
    const int before = __popc(mask & ((1u << row) - 1));
    int* entry = table + kHead + slot * kEntry;
    if (before == 0) *(uint2*)entry = make_uint2(id, __popc(mask));
    entry[kPairs + before] = row * top_k + lane;
}
