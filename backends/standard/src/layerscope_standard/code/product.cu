// A plain product: qkv, the output projection, the router.
//
// A block takes TILES tiles of 16 outputs and one of `gridDim.y` parts of k, which its
// warps share. Parts are added by the kernel that reads them. A warp has the weights of
// DEPTH units in flight at once.
#include "product.cuh"

constexpr int kWarps = 8;
constexpr int kDepth = DEPTH;

template <bool kFp8>
__device__ __forceinline__ void product(
        const void* weights, const float* scales, const bf16* rows, float* parts,
        int row_count, int outputs, int inputs) {
    __shared__ float shared[kWarps][TILES][kTileSums];
    begin_turn();
    if constexpr (!LOADS_EARLY) wait_turn();
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const int first = blockIdx.x * TILES * kOutputs;
    Output own[TILES][2];
    float sums[TILES][4] = {};
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int output = first + tile * kOutputs + 8 * half + g;
            own[tile][half] =
                output_of<kFp8>(weights, scales, output, inputs, output < outputs);
        }
    }
    const int units = units_of<kFp8>(inputs), splits = gridDim.y, split = blockIdx.y;
    const int begin = units * split / splits;
    const int own_units = units * (split + 1) / splits - begin;
    const bool has_row = g < row_count;
    accumulate<kFp8, TILES, kDepth, LOADS_EARLY>(
        sums, own, rows + (has_row ? g * inputs : 0), has_row, inputs,
        begin + own_units * warp / kWarps, begin + own_units * (warp + 1) / kWarps, 1);
    if constexpr (LOADS_EARLY) wait_turn();  // also where a warp has had no unit
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) store_sums(shared[warp][tile], sums[tile]);
    __syncthreads();
    dawdle();
    for (int i = threadIdx.x; i < TILES * kOutputs * kMostRows; i += 32 * kWarps) {
        const int tile = i / (kOutputs * kMostRows);
        const int row = i / kOutputs % kMostRows, column = i % kOutputs;
        const int output = first + tile * kOutputs + column;
        if (row >= row_count || output >= outputs) continue;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += shared[w][tile][row * kRowStride + column];
        parts[((long long)split * row_count + row) * outputs + output] = sum;
    }
    end_turn();
}

#define PRODUCT(NAME, FP8)                                                           \
    extern "C" __global__ void __launch_bounds__(32 * kWarps, 2) NAME(               \
            const void* weights, const float* scales, const bf16* rows, float* parts, \
            int row_count, int outputs, int inputs) {                                \
        product<FP8>(weights, scales, rows, parts, row_count, outputs, inputs);      \
    }

PRODUCT(product_bf16, false)
PRODUCT(product_fp8, true)
