// One token of the draft for every request: base logits plus the product of w2 with the
// row of w1 that the token before takes; the largest, ties to the lowest id.
//
// Each warp takes tiles of 16 tokens of the vocabulary in turn, with the rows of w1 in
// registers. The last block to end looks at what all have found.
#include "keys.cuh"

constexpr int kWarps = 8;

// Shared over the block: `found` of every thread whose number modulo 8 is the request.
__device__ __forceinline__ Key best_of_eights(Key found, Key (*shared)[kMostRows]) {
    found = greater(found, __shfl_xor_sync(0xffffffffu, found, 8));
    found = greater(found, __shfl_xor_sync(0xffffffffu, found, 16));
    if (threadIdx.x % 32 < kMostRows) shared[threadIdx.x / 32][threadIdx.x % 32] = found;
    __syncthreads();
    Key best = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
        best = greater(best, shared[warp][threadIdx.x % kMostRows]);
    return best;
}

template <bool kFp8>
__device__ __forceinline__ void draft_token(
        const void* w2, const float* scales, const bf16* w1, const float* base,
        const long long* before, long long* chosen, Key* found, unsigned* ended,
        int requests, int vocabulary) {
    constexpr int kUnits = RANK / kUnit<kFp8>, kVector = kFp8 ? 16 : 8;
    __shared__ Key shared[kWarps][kMostRows];
    __shared__ bool is_last;
    begin_turn();
    wait_turn();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint4 row[kUnits][2];
    const bool has_row = g < requests;
    const long long token = has_row ? load_handed_long(before + g) : 0;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
        const bf16* from = w1 + token * RANK + unit * kUnit<kFp8> + t * kVector;
        row[unit][0] = load_constant(from, has_row);
        if constexpr (kFp8) row[unit][1] = load_constant(from + 8, has_row);
    }
    Key best[2] = {0, 0};  // of requests 2t and 2t + 1
    const int tiles = (vocabulary + kOutputs - 1) / kOutputs;
    for (int tile = blockIdx.x * kWarps + warp; tile < tiles; tile += gridDim.x * kWarps) {
        uint4 weights[kUnits][2];
        float scale[kUnits][2], logits[4], sums[4] = {};
        Output own[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int output = tile * kOutputs + 8 * half + g;
            own[half] = output_of<kFp8>(w2, scales, output, RANK, output < vocabulary);
        }
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int k = unit * kUnit<kFp8> + t * kVector;
                weights[unit][half] = load_constant(
                    own[half].weights + (kFp8 ? k : 2 * k), own[half].is_there);
                if constexpr (kFp8)
                    scale[unit][half] = load_constant_float(
                        own[half].scales + k / kQuantBlock, own[half].is_there);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int request = 2 * t + i % 2, output = tile * kOutputs + 8 * (i / 2) + g;
            logits[i] = load_handed_float(
                base + (long long)request * vocabulary + output,
                request < requests && output < vocabulary);
        }
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit)
            multiply_unit<kFp8>(sums, weights[unit][0], weights[unit][1], row[unit],
                                scale[unit][0], scale[unit][1]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int output = tile * kOutputs + 8 * (i / 2) + g;
            if (output < vocabulary && 2 * t + i % 2 < requests)
                best[i % 2] = greater(best[i % 2], key_of(logits[i] + sums[i], output));
        }
    }
    // Over g, so that threads 0 to 3 have requests 2t and 2t + 1 of the warp; then these
    // are spread so that thread n has request n % 8.
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            best[i] = greater(best[i], __shfl_xor_sync(0xffffffffu, best[i], mask));
    }
    const Key even = __shfl_sync(0xffffffffu, best[0], lane % kMostRows / 2);
    const Key odd = __shfl_sync(0xffffffffu, best[1], lane % kMostRows / 2);
    const Key of_block = best_of_eights(lane % 2 ? odd : even, shared);
    dawdle();
    if (threadIdx.x < kMostRows) {
        found[blockIdx.x * kMostRows + threadIdx.x] = of_block;
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(ended, 1u) == gridDim.x - 1;
    __syncthreads();
    if (is_last) {
        __threadfence();
        Key own = 0;
        for (int i = threadIdx.x; i < (int)gridDim.x * kMostRows; i += 32 * kWarps)
            own = greater(own, (Key)load_handed_long((const long long*)found + i));
        const Key of_all = best_of_eights(own, shared);
        dawdle();
        if ((int)threadIdx.x < requests)
            chosen[threadIdx.x] = token_of(of_all);
        if (threadIdx.x == 0) *ended = 0;
    }
    end_turn();
}

#define DRAFT(NAME, FP8)                                                               \
    extern "C" __global__ void __launch_bounds__(32 * kWarps, 2) NAME(                 \
            const void* w2, const float* scales, const bf16* w1, const float* base,    \
            const long long* before, long long* chosen, Key* found, unsigned* ended,   \
            int requests, int vocabulary) {                                            \
        draft_token<FP8>(w2, scales, w1, base, before, chosen, found, ended, requests, \
                         vocabulary);                                                  \
    }

DRAFT(draft_token_bf16, false)
DRAFT(draft_token_fp8, true)
