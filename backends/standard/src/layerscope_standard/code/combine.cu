// Joins what the splits of the context found: a block takes 32 elements of one row and
// query head, so that all processors have some.
#include "product.cuh"

constexpr int kWarps = 8;
constexpr int kElements = 32;
constexpr int kLanes = kElements / 4;           // threads of a group, four elements each
constexpr int kGroups = 32 * kWarps / kLanes;   // that take splits in turn
constexpr int kDepth = 5;                       // splits that a group loads at once

// Sums over values, the sum of their shares, and the greatest score of all of them.
struct Found {
    float greatest = -kInfinity, total = 0.0f, mixed[4] = {};

    __device__ __forceinline__ void join(float score, float sum, const float (&more)[4]) {
        const float now = fmaxf(greatest, score);
        const float finite = now == -kInfinity ? 0.0f : now;
        const float before = power_of_two(greatest - finite);
        const float weight = power_of_two(score - finite);
        greatest = now;
        total = total * before + weight * sum;
#pragma unroll
        for (int i = 0; i < 4; ++i) mixed[i] = mixed[i] * before + weight * more[i];
    }
};

// Grid: rows x query heads, slices of a head.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 2) combine(
        const float* parts, const float2* stats, bf16* out, int splits) {
    __shared__ float mixes[kWarps][kElements], greatests[kWarps], totals[kWarps];
    begin_turn();
    const int group = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
    const long long place = blockIdx.x, places = gridDim.x;
    const int first = blockIdx.y * kElements;
    wait_turn();
    Found found;
#pragma unroll 1
    for (int start = group; start < splits; start += kDepth * kGroups) {
        uint4 loaded[kDepth];
        uint2 found_stats[kDepth];  // a greatest score, and a sum of shares
#pragma unroll
        for (int n = 0; n < kDepth; ++n) {
            const int split = start + n * kGroups;
            const bool is_there = split < splits;
            const long long at = split * places + place;
            loaded[n] = load_handed(parts + at * HEAD_DIM + first + 4 * lane, is_there);
            found_stats[n] = load_handed_pair(stats + at, is_there);
        }
#pragma unroll
        for (int n = 0; n < kDepth; ++n) {
            const float more[4] = {
                __uint_as_float(loaded[n].x), __uint_as_float(loaded[n].y),
                __uint_as_float(loaded[n].z), __uint_as_float(loaded[n].w)};
            const bool is_there = start + n * kGroups < splits;
            const float score = __uint_as_float(found_stats[n].x);
            found.join(is_there ? score : -kInfinity,
                       __uint_as_float(found_stats[n].y), more);
        }
    }
#pragma unroll
    for (int mask = kLanes; mask < 32; mask *= 2) {
        float more[4];
        const float score = __shfl_xor_sync(0xffffffffu, found.greatest, mask);
        const float sum = __shfl_xor_sync(0xffffffffu, found.total, mask);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            more[i] = __shfl_xor_sync(0xffffffffu, found.mixed[i], mask);
        found.join(score, sum, more);
    }
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 < kLanes) {
#pragma unroll
        for (int i = 0; i < 4; ++i) mixes[warp][4 * lane + i] = found.mixed[i];
        greatests[warp] = found.greatest;
        totals[warp] = found.total;
    }
    __syncthreads();
    dawdle();
    if (threadIdx.x < kElements) {
        float best = -kInfinity, sum = 0.0f, mix = 0.0f;
#pragma unroll
        for (int i = 0; i < kWarps; ++i) best = fmaxf(best, greatests[i]);
#pragma unroll
        for (int i = 0; i < kWarps; ++i) {
            const float weight = power_of_two(greatests[i] - best);
            sum += weight * totals[i];
            mix += weight * mixes[i][threadIdx.x];
        }
        out[place * HEAD_DIM + first + threadIdx.x] = narrow(mix / sum);
    }
    end_turn();
}
