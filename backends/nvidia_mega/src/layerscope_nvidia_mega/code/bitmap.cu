// From the parts of the router's product to the table of experts that have rows, in one
// block: a warp a row chooses its experts and sets the row's bit in a mask of each. From
// these masks every warp knows by itself where in the table its pairs are.
//
// Experts, weights and table are bit for bit those of top_k and align.
#include "choosing.cuh"

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

// Threads: 32 a row.
extern "C" __global__ void __launch_bounds__(32 * kMostRows) route(
        const float* parts, const float* bias, int* ids, float* weights, int* table,
        int experts, int top_k, int normalise) {
    __shared__ unsigned masks[32 * kOwn];  // of each expert, a bit a row
    __shared__ uint2 places[kMostRows][32];
    begin_turn();
    for (int i = threadIdx.x; i < 32 * kOwn; i += blockDim.x) masks[i] = 0;
    __syncthreads();
    const int row = threadIdx.x / 32, rows = blockDim.x / 32, lane = threadIdx.x % 32;
    wait_turn();
    float logits[kOwn];
    add_parts(logits, parts, bias, row, rows, experts);
    const Chosen own = choose(logits, experts, top_k, normalise, places[row]);
    dawdle();
    if (lane < top_k) {
        atomicOr(masks + own.id, 1u << row);
        ids[row * top_k + lane] = own.id;
        weights[row * top_k + lane] = own.weight;
    }
    __syncthreads();
    fill_table(masks, table, own.id, row, top_k);
    end_turn();
}
