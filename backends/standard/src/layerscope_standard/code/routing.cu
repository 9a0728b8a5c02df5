// From the parts of the router's product to chosen experts, and from these to the table
// of experts that have rows.
#include "choosing.cuh"

// One warp a row.
extern "C" __global__ void __launch_bounds__(32) top_k(
        const float* parts, const float* bias, int* ids, float* weights, int experts,
        int top_k, int normalise) {
    __shared__ uint2 places[32];
    begin_turn();
    wait_turn();
    const int row = blockIdx.x, lane = threadIdx.x;
    float logits[kOwn];
    add_parts(logits, parts, bias, row, gridDim.x, experts);
    const Chosen own = choose(logits, experts, top_k, normalise, places);
    if (lane < top_k) {
        ids[row * top_k + lane] = own.id;
        weights[row * top_k + lane] = own.weight;
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
