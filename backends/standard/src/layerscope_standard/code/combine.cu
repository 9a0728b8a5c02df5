// Joins what the splits of the context found, one block a row and query head.
#include "product.cuh"

constexpr int kThreads = 512;
constexpr int kLanes = HEAD_DIM / 4;         // threads that hold a head, four elements each
constexpr int kGroups = kThreads / kLanes;   // that take splits in turn
constexpr int kDepth = 9;                    // splits that a group loads at once

extern "C" __global__ void __launch_bounds__(kThreads) combine(
        const float* parts, const float2* stats, bf16* out, int splits) {
    __shared__ float mixes[kGroups][HEAD_DIM], greatests[kGroups], totals[kGroups];
    begin_turn();
    wait_turn();
    const int group = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
    const long long place = blockIdx.x, places = gridDim.x;
    float greatest = -kInfinity, total = 0.0f, mixed[4] = {};
#pragma unroll 1
    for (int first = group; first < splits; first += kDepth * kGroups) {
        uint4 loaded[kDepth];
        float scores[kDepth], sums[kDepth];
#pragma unroll
        for (int n = 0; n < kDepth; ++n) {
            const int split = first + n * kGroups;
            const bool is_there = split < splits;
            const long long at = split * places + place;
            const float* stat = (const float*)(stats + at);
            scores[n] = is_there ? load_handed_float(stat, true) : -kInfinity;
            sums[n] = load_handed_float(stat + 1, is_there);
            loaded[n] = load_handed(parts + at * HEAD_DIM + 4 * lane, is_there);
        }
#pragma unroll
        for (int n = 0; n < kDepth; ++n) {
            const float now = fmaxf(greatest, scores[n]);
            const float finite = now == -kInfinity ? 0.0f : now;
            const float before = power_of_two(greatest - finite);
            const float weight = power_of_two(scores[n] - finite);
            const unsigned words[4] = {loaded[n].x, loaded[n].y, loaded[n].z, loaded[n].w};
            greatest = now;
            total = total * before + weight * sums[n];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                mixed[i] = mixed[i] * before + weight * __uint_as_float(words[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) mixes[group][4 * lane + i] = mixed[i];
    if (lane == 0) {
        greatests[group] = greatest;
        totals[group] = total;
    }
    __syncthreads();
    if (threadIdx.x < HEAD_DIM) {
        float best = -kInfinity, sum = 0.0f, mix = 0.0f;
#pragma unroll
        for (int i = 0; i < kGroups; ++i) best = fmaxf(best, greatests[i]);
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
            const float weight = power_of_two(greatests[i] - best);
            sum += weight * totals[i];
            mix += weight * mixes[i][threadIdx.x];
        }
        out[place * HEAD_DIM + threadIdx.x] = narrow(mix / sum);
    }
    end_turn();
}
