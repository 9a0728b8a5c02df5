// From the parts of the router's product to the experts of a row, by one warp.
#pragma once
#include "table.cuh"

constexpr int kOwn = LANE_EXPERTS;  // experts of a thread, one after another
constexpr int kTogether = 64 / kOwn;  // splits that are loaded at once
constexpr unsigned kSign = 0x80000000u;
constexpr unsigned kAll = 0xffffffffu;

// The thread's values of `from`, one for each expert.
__device__ __forceinline__ void load_own(
        float (&own)[kOwn], const float* from, int experts, bool is_there) {
    const int first = kOwn * (threadIdx.x % 32);
    if constexpr (kOwn % 4 == 0) {
        if (experts % 4 == 0) {  // so that every row begins at 16 bytes
#pragma unroll
            for (int i = 0; i < kOwn; i += 4) {
                const uint4 four =
                    load_handed(from + first + i, is_there && first + i < experts);
                own[i] = __uint_as_float(four.x);
                own[i + 1] = __uint_as_float(four.y);
                own[i + 2] = __uint_as_float(four.z);
                own[i + 3] = __uint_as_float(four.w);
            }
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
        own[i] = load_handed_float(from + first + i, is_there && first + i < experts);
}

// The bias and all parts of `row`, added in order; up to kTogether parts in one trip.
__device__ __forceinline__ void add_parts(
        float (&logits)[kOwn], const float* parts, const float* bias, int row, int rows,
        int experts) {
    load_own(logits, bias + row * experts, experts, true);
    constexpr int kMost = SPLITS < kTogether ? SPLITS : kTogether;
#pragma unroll
    for (int first = 0; first < SPLITS; first += kTogether) {
        float loaded[kMost][kOwn];
#pragma unroll
        for (int n = 0; n < kMost; ++n)
            load_own(loaded[n], parts + ((first + n) * rows + row) * experts, experts,
                     first + n < SPLITS);
#pragma unroll
        for (int n = 0; n < kMost; ++n) {
            if (first + n >= SPLITS) break;
#pragma unroll
            for (int i = 0; i < kOwn; ++i) logits[i] += loaded[n][i];
        }
    }
}

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

// Of lane p: the expert in place p and its weight, where there is such a place. The
// largest logit, ties to the lowest expert, which is that of the lowest lane; weights are
// the softmax over all experts, divided by their sum where `normalise`. `places` is
// shared memory of this warp, one for each place.
__device__ __forceinline__ Chosen choose(
        const float (&logits)[kOwn], int experts, int top_k, bool normalise,
        uint2* places) {
    const int lane = threadIdx.x % 32, first = kOwn * lane;
    const unsigned below = (1u << lane) - 1;
    unsigned keys[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
        keys[i] = first + i < experts ? key_of(logits[i]) : 0;
#pragma unroll 1
    for (int place = 0; place < top_k; ++place) {
        unsigned own = keys[0];
        int at = 0;
#pragma unroll
        for (int i = 1; i < kOwn; ++i) own = max(own, keys[i]);
#pragma unroll
        for (int i = kOwn - 1; i >= 0; --i)
            if (keys[i] == own) at = i;
        const unsigned best = __reduce_max_sync(kAll, own);
        const unsigned holders = __ballot_sync(kAll, own == best);
        const bool is_chosen = own == best && !(holders & below);
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            if (is_chosen && i == at) keys[i] = 0;
        if (is_chosen) places[place] = make_uint2(best, first + at);
    }
    __syncwarp();
    const float greatest = value_of(places[0].x);
    const uint2 chosen = places[lane < top_k ? lane : 0];
    const float share = lane < top_k ? expf(value_of(chosen.x) - greatest) : 0.0f;
    float all = 0.0f;
    if (normalise) {
#pragma unroll 8
        for (int place = 0; place < top_k; ++place)
            all += __shfl_sync(kAll, share, place);
    } else {
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            all += first + i < experts ? expf(logits[i] - greatest) : 0.0f;
#pragma unroll
        for (int mask = 16; mask; mask /= 2) all += __shfl_xor_sync(kAll, all, mask);
    }
    return {(int)chosen.y, share / all};
}
