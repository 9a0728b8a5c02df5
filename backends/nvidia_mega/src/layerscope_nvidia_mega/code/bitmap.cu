// From the parts of the router's product to the table of experts that have rows, in one
// block: a warp a row chooses its experts and sets the row's bit in a mask of each. From
// these masks every warp knows by itself where in the table its pairs are.
//
// Experts, weights and table are bit for bit those of top_k and align.
#include "choosing.cuh"

constexpr int kTogether = 64 / kOwn;  // splits that are loaded at once

// Threads: 32 a row.
extern "C" __global__ void __launch_bounds__(32 * kMostRows) route(
        const float* parts, const float* bias, int* ids, float* weights, int* table,
        int experts, int top_k, int normalise) {
    __shared__ unsigned masks[32 * kOwn];  // of each expert, a bit a row
    begin_turn();
    for (int i = threadIdx.x; i < 32 * kOwn; i += blockDim.x) masks[i] = 0;
    __syncthreads();
    const int row = threadIdx.x / 32, rows = blockDim.x / 32, lane = threadIdx.x % 32;
    wait_turn();
    float logits[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int expert = 32 * i + lane;
        logits[i] = load_handed_float(bias + row * experts + expert, expert < experts);
    }
#pragma unroll
    for (int first = 0; first < SPLITS; first += kTogether) {
        constexpr int kMost = SPLITS < kTogether ? SPLITS : kTogether;
        float loaded[kMost][kOwn];
#pragma unroll
        for (int n = 0; n < kMost; ++n) {
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
                const int split = first + n, expert = 32 * i + lane;
                loaded[n][i] = load_handed_float(
                    parts + (split * rows + row) * experts + expert,
                    split < SPLITS && expert < experts);
            }
        }
#pragma unroll
        for (int n = 0; n < kMost; ++n) {
            if (first + n >= SPLITS) break;
#pragma unroll
            for (int i = 0; i < kOwn; ++i) logits[i] += loaded[n][i];
        }
    }

    const Chosen own = choose(logits, experts, top_k, normalise);
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
