// The input norm inside the qkv product: every block norms all rows for itself, since the
// rows are few and on their way from the second-level cache anyway, and then multiplies
// its tile of 16 outputs with them. One kernel less to wait for.
//
// Bit for bit what norm_rows and a product with one part of k give: the sum of squares
// is added as there, by 512 threads of which each here is two.
//
// Macros: SIZE, of a row; ROWS, up to eight. It takes half of a processor's registers at
// most, so that the kernel after it can start beside it.
#include "product.cuh"

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kVector = 4;
constexpr int kTurns = 2;         // threads of norm_rows that a thread stands for
constexpr int kNormThreads = kTurns * kThreads;
constexpr int kSteps = SIZE / (kNormThreads * kVector) +
                       (SIZE % (kNormThreads * kVector) != 0);
constexpr int kRowBytes = 2 * SIZE + 64;  // no bank twice in a load of eight rows
template <bool kFp8>
constexpr int kUnits = (SIZE + kUnit<kFp8> - 1) / kUnit<kFp8>;
template <bool kFp8>
constexpr int kOwnUnits = (kUnits<kFp8> + kWarps - 1) / kWarps;  // of a warp, at most
template <bool kFp8>
constexpr int kEarly = kOwnUnits<kFp8> < 8 ? kOwnUnits<kFp8> : 8;  // in flight at once

struct Four {
    float at[kVector];
};

__device__ __forceinline__ Four floats_of(const uint2& words) {
    return {{low_half(words.x), high_half(words.x), low_half(words.y),
             high_half(words.y)}};
}

// Rows of `hidden`, normed, into shared memory.
__device__ __forceinline__ void norm(
        unsigned char* to, const bf16* hidden, const uint2 (&weights)[kTurns][kSteps],
        float eps) {
    __shared__ float sums[ROWS][kTurns * kWarps], factors[ROWS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint2 values[ROWS][kTurns][kSteps];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
            for (int n = 0; n < kSteps; ++n) {
                const int thread = turn * kThreads + threadIdx.x;
                const int at = (n * kNormThreads + thread) * kVector;
                values[row][turn][n] =
                    load_handed_pair(hidden + row * SIZE + at, at < SIZE);
            }
        }
    }
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
            float squares = 0.0f;
#pragma unroll
            for (int n = 0; n < kSteps; ++n) {
                const Four four = floats_of(values[row][turn][n]);
#pragma unroll
                for (int i = 0; i < kVector; ++i) squares += four.at[i] * four.at[i];
            }
#pragma unroll
            for (int mask = 16; mask; mask /= 2)
                squares += __shfl_xor_sync(0xffffffffu, squares, mask);
            if (lane == 0) sums[row][turn * kWarps + warp] = squares;
        }
    }
    __syncthreads();
    if (threadIdx.x < ROWS) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < kTurns * kWarps; ++i) sum += sums[threadIdx.x][i];
        factors[threadIdx.x] = rsqrtf(sum / SIZE + eps);
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        const float factor = factors[row];
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
            for (int n = 0; n < kSteps; ++n) {
                const int thread = turn * kThreads + threadIdx.x;
                const int at = (n * kNormThreads + thread) * kVector;
                if (at >= SIZE) continue;
                const Four four = floats_of(values[row][turn][n]);
                const uint2 weight = weights[turn][n];
                const unsigned low = pack(four.at[0] * factor, four.at[1] * factor);
                const unsigned high = pack(four.at[2] * factor, four.at[3] * factor);
                *(uint2*)(to + row * kRowBytes + 2 * at) = make_uint2(
                    multiply_pairs(low, weight.x), multiply_pairs(high, weight.y));
            }
        }
    }
    __syncthreads();
}

// Grid: tiles of 16 outputs.
template <bool kFp8>
__device__ __forceinline__ void norm_product(
        const void* weights, const float* scales, const bf16* norm_weight,
        const bf16* hidden, float* parts, int outputs, float eps) {
    constexpr int kDepth = kEarly<kFp8>, kOwn = kOwnUnits<kFp8>;
    constexpr int kElements = kFp8 ? 16 : 8;  // in 16 bytes of weights
    DYNAMIC_SHARED(shared);
    __shared__ float partial[kWarps][kTileSums];
    begin_turn();
    if constexpr (!LOADS_EARLY) wait_turn();
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const int own = threadIdx.x % 4 * kElements, first = blockIdx.x * kOutputs;
    Output output[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int number = first + 8 * half + g;
        output[half] = output_of<kFp8>(weights, scales, number, SIZE, number < outputs);
    }
    uint2 norm_weights[kTurns][kSteps];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
        for (int n = 0; n < kSteps; ++n) {
            const int thread = turn * kThreads + threadIdx.x;
            const int at = (n * kNormThreads + thread) * kVector;
            norm_weights[turn][n] = load_constant_pair(norm_weight + at, at < SIZE);
        }
    }
    const int begin = kUnits<kFp8> * warp / kWarps;
    const int end = kUnits<kFp8> * (warp + 1) / kWarps;
    uint4 loaded[kDepth][2];
    float scale[kDepth][2];
    auto load = [&](int start) {
#pragma unroll
        for (int n = 0; n < kDepth; ++n) {
            const int unit = begin + start + n, k = unit * kUnit<kFp8> + own;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const bool is_there = unit < end && output[half].is_there;
                loaded[n][half] = load_constant(
                    output[half].weights + (kFp8 ? k : 2 * k), is_there && k < SIZE);
                if constexpr (kFp8)
                    scale[n][half] = load_constant_float(
                        output[half].scales + unit * kUnit<kFp8> / kQuantBlock, is_there);
            }
        }
    };
    load(0);
    if constexpr (LOADS_EARLY) wait_turn();
    norm(shared, hidden, norm_weights, eps);
    float sums[4] = {};
#pragma unroll
    for (int start = 0; start < kOwn; start += kDepth) {
        if (start > 0) load(start);
#pragma unroll
        for (int n = 0; n < kDepth; ++n) {
            const int unit = begin + start + n, k = unit * kUnit<kFp8> + own;
            uint4 row[2] = {};
            if (unit < end && g < ROWS && k < SIZE) {
                row[0] = *(const uint4*)(shared + g * kRowBytes + 2 * k);
                if constexpr (kFp8)
                    row[1] = *(const uint4*)(shared + g * kRowBytes + 2 * k + 16);
            }
            multiply_unit<kFp8>(sums, loaded[n][0], loaded[n][1], row, scale[n][0],
                                scale[n][1]);
        }
    }
    store_sums(partial[warp], sums);
    __syncthreads();
    for (int i = threadIdx.x; i < kOutputs * kMostRows; i += kThreads) {
        const int row = i / kOutputs, column = i % kOutputs;
        if (row >= ROWS || first + column >= outputs) continue;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += partial[w][row * kRowStride + column];
        parts[row * outputs + first + column] = sum;
    }
    end_turn();
}

#define NORM_PRODUCT(NAME, FP8)                                                        \
    extern "C" __global__ void __launch_bounds__(kThreads, 1) NAME(                    \
            const void* weights, const float* scales, const bf16* norm_weight,         \
            const bf16* hidden, float* parts, int outputs, float eps) {                \
        norm_product<FP8>(weights, scales, norm_weight, hidden, parts, outputs, eps);  \
    }

NORM_PRODUCT(norm_product_bf16, false)
NORM_PRODUCT(norm_product_fp8, true)
