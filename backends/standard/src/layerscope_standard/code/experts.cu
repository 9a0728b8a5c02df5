// The experts that have rows, each read once for all of its rows. A dense MLP is one
// expert that has all rows, with weight one.
#include "table.cuh"

constexpr int kUpWarps = 8;
#ifndef UP_DEPTH
#define UP_DEPTH 4
#endif
constexpr int kUpDepth = UP_DEPTH;  // units of k whose weights a warp has in flight
constexpr int kDownWarps = 16;
template <bool kFp8>
constexpr int kDownDepth = kFp8 ? 3 : 6;
constexpr int kEight = 8;
static_assert(kMostRows * kOutputs <= 32 * kDownWarps, "an output a thread");

// silu(gate) * up. A tile is eight outputs of gate and, as its rows g + 8, those of up.
// Grid: tiles, experts that may have rows.
template <bool kFp8>
__device__ __forceinline__ void gate_up(
        const void* weights, const float* scales, const bf16* rows, const int* table,
        bf16* active, int width, int inputs, int top_k) {
    __shared__ float shared[kUpWarps][TILES][kTileSums];
    __shared__ int pairs[kMostRows];
    begin_turn();
    wait_turn();
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const int* entry = table + kHead + blockIdx.y * kEntry;
    const int used = load_handed_int(table), expert = load_handed_int(entry);
    const int count = load_handed_int(entry + 1);
    const int pair = load_handed_int(entry + kPairs + g);
    if ((int)blockIdx.y >= used) return;
    if (threadIdx.x % 4 == 0 && warp == 0) pairs[g] = pair;

    const long long matrix = (long long)expert * 2 * width * inputs * (kFp8 ? 1 : 2);
    const int blocks = (inputs + kQuantBlock - 1) / kQuantBlock *
                       ((2 * width + kQuantBlock - 1) / kQuantBlock);
    const void* own_weights = (const unsigned char*)weights + matrix;
    const float* own_scales = kFp8 ? scales + (long long)expert * blocks : nullptr;
    const int first = blockIdx.x * TILES * kEight;
    Output own[TILES][2];
    float sums[TILES][4] = {};
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int output = first + tile * kEight + g;
            own[tile][half] = output_of<kFp8>(
                own_weights, own_scales, half * width + output, inputs, output < width);
        }
    }
    const bool has_row = g < count;
    const int row = has_row ? pair / top_k : 0, units = units_of<kFp8>(inputs);
    accumulate<kFp8, TILES, kUpDepth>(
        sums, own, rows + row * inputs, has_row, inputs,
        kFp8 ? warp : units * warp / kUpWarps,
        kFp8 ? units : units * (warp + 1) / kUpWarps, kFp8 ? kUpWarps : 1);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) store_sums(shared[warp][tile], sums[tile]);
    __syncthreads();
    dawdle();
    for (int i = threadIdx.x; i < TILES * kEight * kMostRows; i += 32 * kUpWarps) {
        const int tile = i / (kEight * kMostRows), n = i / kEight % kMostRows;
        const int at = n * kRowStride + i % kEight;
        const int output = first + tile * kEight + i % kEight;
        if (n >= count || output >= width) continue;
        float gate = 0.0f, up = 0.0f;
#pragma unroll
        for (int w = 0; w < kUpWarps; ++w) {
            gate += shared[w][tile][at];
            up += shared[w][tile][at + kEight];
        }
        active[(long long)pairs[n] * width + output] =
            narrow(gate / (1.0f + expf(-gate)) * up);
    }
    end_turn();
}

// The residual plus the weighted sum of the experts' outputs in the order of their
// places. A block takes 16 outputs of all experts; a warp takes, in turn, one of `parts`
// parts of k of one expert.
template <bool kFp8>
__device__ __forceinline__ void down(
        const void* weights, const float* scales, const bf16* active, const int* table,
        const float* row_weights, const bf16* residual, bf16* out, int row_count,
        int top_k, int outputs, int inputs, int parts, int most_experts) {
    DYNAMIC_SHARED(dynamic);
    const int all_pairs = row_count * top_k;
    float* sums_of_pairs = (float*)dynamic;  // [parts][pairs][kRowStride]
    float* shares = sums_of_pairs + parts * all_pairs * kRowStride;
    int* entries = (int*)(shares + all_pairs);
    begin_turn();
    // Where gate_up starts this kernel, it has waited itself: what routing wrote is there.
    if constexpr (!LOADS_EARLY) wait_turn();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int used = load_handed_int(table);
    for (int i = threadIdx.x; i < most_experts * kEntry; i += 32 * kDownWarps)
        entries[i] = load_handed_int(table + kHead + i);
    for (int i = threadIdx.x; i < all_pairs; i += 32 * kDownWarps)
        shares[i] = load_handed_float(row_weights + i, true);
    const int first = blockIdx.x * kOutputs, units = units_of<kFp8>(inputs);
    // An output a thread, in the end: there are fewer outputs than threads.
    const int row = threadIdx.x / kOutputs, output = first + (int)threadIdx.x % kOutputs;
    const bool has_output = row < row_count && output < outputs;
    const long long at = has_output ? (long long)row * outputs + output : 0;
    const float before = has_output ? low_half(load_handed_half(residual + at)) : 0.0f;
    __syncthreads();

    const int blocks = (inputs + kQuantBlock - 1) / kQuantBlock *
                       ((outputs + kQuantBlock - 1) / kQuantBlock);
    for (int n = warp; n < used * parts; n += kDownWarps) {
        const int* entry = entries + n / parts * kEntry;
        const int part = n % parts, count = entry[1];
        const bool has_row = g < count;
        const long long expert = entry[0];
        const void* own_weights =
            (const unsigned char*)weights + expert * outputs * inputs * (kFp8 ? 1 : 2);
        const float* own_scales = kFp8 ? scales + expert * blocks : nullptr;
        Output own[1][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int output = first + 8 * half + g;
            own[0][half] = output_of<kFp8>(
                own_weights, own_scales, output, inputs, output < outputs);
        }
        const long long pair = has_row ? entry[kPairs + g] : 0;
        float sums[1][4] = {};
        accumulate<kFp8, 1, kDownDepth<kFp8>, LOADS_EARLY>(
            sums, own, active + pair * inputs, has_row, inputs, units * part / parts,
            units * (part + 1) / parts, 1);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (2 * t + i >= count) continue;
            float* to = sums_of_pairs +
                (part * all_pairs + entry[kPairs + 2 * t + i]) * kRowStride;
            to[g] = sums[0][i];
            to[g + 8] = sums[0][2 + i];
        }
    }
    if constexpr (LOADS_EARLY) wait_turn();  // also where a warp has had no expert
    __syncthreads();
    if (has_output) {
        float sum = 0.0f;
#pragma unroll 8
        for (int place = 0; place < top_k; ++place) {
            const int pair = row * top_k + place;
            float one = 0.0f;
            for (int part = 0; part < parts; ++part)
                one += sums_of_pairs[(part * all_pairs + pair) * kRowStride +
                                     threadIdx.x % kOutputs];
            sum += shares[pair] * one;
        }
        out[at] = narrow(before + sum);
    }
    end_turn();
}

#define EXPERTS(SUFFIX, FP8)                                                           \
    extern "C" __global__ void __launch_bounds__(32 * kUpWarps, 2) gate_up_##SUFFIX(   \
            const void* weights, const float* scales, const bf16* rows,                \
            const int* table, bf16* active, int width, int inputs, int top_k) {        \
        gate_up<FP8>(weights, scales, rows, table, active, width, inputs, top_k);      \
    }                                                                                  \
    extern "C" __global__ void __launch_bounds__(32 * kDownWarps, 1) down_##SUFFIX(    \
            const void* weights, const float* scales, const bf16* active,              \
            const int* table, const float* row_weights, const bf16* residual,          \
            bf16* out, int row_count, int top_k, int outputs, int inputs, int parts,   \
            int most_experts) {                                                        \
        down<FP8>(weights, scales, active, table, row_weights, residual, out,          \
                  row_count, top_k, outputs, inputs, parts, most_experts);             \
    }

EXPERTS(bf16, false)
EXPERTS(fp8, true)
