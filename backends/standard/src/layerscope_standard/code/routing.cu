// From the parts of the router's product to chosen experts, and from these to the table
// of experts that have rows.
#include "table.cuh"

// One warp a row. The largest of logit + bias, ties to the lowest expert; weights are
// the softmax over all experts, divided by their sum where `normalise`.
extern "C" __global__ void __launch_bounds__(32) top_k(
        const float* parts, const float* bias, int* ids, float* weights, int experts,
        int splits, int top_k, int normalise) {
    constexpr int kOwn = LANE_EXPERTS;  // experts of a thread: lane, lane + 32, ...
    begin_turn();
    wait_turn();
    const int row = blockIdx.x, rows = gridDim.x, lane = threadIdx.x;
    float logits[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int expert = 32 * i + lane;
        logits[i] = load_handed_float(bias + row * experts + expert, expert < experts);
    }
#pragma unroll 4
    for (int split = 0; split < splits; ++split) {
        const float* part = parts + ((long long)split * rows + row) * experts;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const int expert = 32 * i + lane;
            logits[i] += load_handed_float(part + expert, expert < experts);
        }
    }
    float greatest = -kInfinity;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        if (32 * i + lane >= experts) logits[i] = -kInfinity;
        greatest = fmaxf(greatest, logits[i]);
    }
#pragma unroll
    for (int mask = 16; mask; mask /= 2)
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, mask));
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) all += expf(logits[i] - greatest);
#pragma unroll
    for (int mask = 16; mask; mask /= 2) all += __shfl_xor_sync(0xffffffffu, all, mask);

    float chosen = 0.0f, weight = 0.0f;
    int id = 0;
    for (int place = 0; place < top_k; ++place) {
        float best = -kInfinity;
        int at = 0x7fffffff;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            if (logits[i] > best) {
                best = logits[i];
                at = 32 * i + lane;
            }
        }
#pragma unroll
        for (int mask = 16; mask; mask /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, best, mask);
            const int there = __shfl_xor_sync(0xffffffffu, at, mask);
            if (other > best || (other == best && there < at)) {
                best = other;
                at = there;
            }
        }
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            if (32 * i + lane == at) logits[i] = -kInfinity;
        const float share = expf(best - greatest);
        chosen += share;
        if (lane == place) {
            id = at;
            weight = share;
        }
    }
    if (lane < top_k) {
        ids[row * top_k + lane] = id;
        weights[row * top_k + lane] = weight / (normalise ? chosen : all);
    }
    end_turn();
}

// One block, a thread an expert.
extern "C" __global__ void __launch_bounds__(512) align(
        const int* ids, int* table, int pairs, int experts) {
    constexpr int kWords = (MOST_PAIRS + 31) / 32;
    __shared__ int shared_ids[32 * kWords], before[16];
    begin_turn();
    wait_turn();
    const int expert = threadIdx.x, warp = expert / 32, lane = expert % 32;
    for (int i = expert; i < 32 * kWords; i += blockDim.x)
        shared_ids[i] = i < pairs ? load_handed_int(ids + i) : -1;
    __syncthreads();
    unsigned own[kWords];  // a bit for each pair of this expert
    int count = 0;
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
        own[word] = 0;
#pragma unroll
        for (int i = 0; i < 32; ++i)
            own[word] |= (unsigned)(shared_ids[32 * word + i] == expert) << i;
        count += __popc(own[word]);
    }
    const unsigned used = __ballot_sync(0xffffffffu, count > 0 && expert < experts);
    if (lane == 0) before[warp] = __popc(used);
    __syncthreads();
    int slot = __popc(used & ((1u << lane) - 1)), all = 0;
    for (int i = 0; i < (int)blockDim.x / 32; ++i) {
        if (i < warp) slot += before[i];
        all += before[i];
    }
    if (expert == 0) table[0] = all;
    if (count > 0 && expert < experts) {
        int* entry = table + kHead + slot * kEntry;
        entry[0] = expert;
        entry[1] = count;
        int* to = entry + kPairs;
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
            for (unsigned left = own[word]; left; left &= left - 1)
                *to++ = 32 * word + __ffs((int)left) - 1;
        }
    }
    end_turn();
}
