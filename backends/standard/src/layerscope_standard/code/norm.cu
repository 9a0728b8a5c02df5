// Root-mean-square norms, one block a row.
#include "product.cuh"

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kVector = 4;
constexpr int kMostVectors = 4;  // of a thread: rows of up to 8,192 elements

struct Four {
    float at[4];
};

__device__ __forceinline__ Four floats_of(const uint4& words) {
    return {{__uint_as_float(words.x), __uint_as_float(words.y),
             __uint_as_float(words.z), __uint_as_float(words.w)}};
}

__device__ __forceinline__ Four floats_of(const uint2& words) {
    return {{low_half(words.x), high_half(words.x), low_half(words.y),
             high_half(words.y)}};
}

__device__ __forceinline__ float round_to_bf16(float value) {
    return low_half(pack(value, 0.0f));
}

__device__ __forceinline__ float sum_of_block(float own) {
    __shared__ float sums[kWarps];
#pragma unroll
    for (int mask = 16; mask; mask /= 2) own += __shfl_xor_sync(0xffffffffu, own, mask);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += sums[i];
    return sum;
}

// Row `blockIdx.x`: the residual, plus `splits` parts of a product where there are any,
// rounded into `summed`; its norm times `weight` into `normed`.
template <bool kAdds>
__device__ __forceinline__ void norm(
        const float* parts, const bf16* residual, const bf16* weight, bf16* summed,
        bf16* normed, int splits, int size, float eps) {
    begin_turn();
    if constexpr (!LOADS_EARLY) wait_turn();
    const long long row = blockIdx.x, rows = gridDim.x;
    Four values[kMostVectors] = {}, weights[kMostVectors] = {};
    float squares = 0.0f;
#pragma unroll
    for (int n = 0; n < kMostVectors; ++n) {
        if (n * kThreads * kVector >= size) break;
        const int at = (n * kThreads + threadIdx.x) * kVector;
        weights[n] = floats_of(load_constant_pair(weight + at, at < size));
    }
    if constexpr (LOADS_EARLY) wait_turn();
#pragma unroll
    for (int n = 0; n < kMostVectors; ++n) {
        if (n * kThreads * kVector >= size) break;
        const int at = (n * kThreads + threadIdx.x) * kVector;
        const bool is_there = at < size;
        values[n] = floats_of(load_handed_pair(residual + row * size + at, is_there));
        if constexpr (kAdds) {
            Four added = {};
#pragma unroll 4
            for (int split = 0; split < splits; ++split) {
                const float* part = parts + (split * rows + row) * size + at;
                const Four more = floats_of(load_handed(part, is_there));
#pragma unroll
                for (int i = 0; i < kVector; ++i) added.at[i] += more.at[i];
            }
#pragma unroll
            for (int i = 0; i < kVector; ++i)
                values[n].at[i] = round_to_bf16(values[n].at[i] + added.at[i]);
        }
#pragma unroll
        for (int i = 0; i < kVector; ++i) squares += values[n].at[i] * values[n].at[i];
    }
    const float factor = rsqrtf(sum_of_block(squares) / size + eps);
    dawdle();
#pragma unroll
    for (int n = 0; n < kMostVectors; ++n) {
        const int at = (n * kThreads + threadIdx.x) * kVector;
        if (at >= size) continue;
        float scaled[kVector];
#pragma unroll
        for (int i = 0; i < kVector; ++i)
            scaled[i] = round_to_bf16(values[n].at[i] * factor) * weights[n].at[i];
        *(uint2*)(normed + row * size + at) =
            make_uint2(pack(scaled[0], scaled[1]), pack(scaled[2], scaled[3]));
        if constexpr (kAdds) {
            const Four& kept = values[n];
            *(uint2*)(summed + row * size + at) =
                make_uint2(pack(kept.at[0], kept.at[1]), pack(kept.at[2], kept.at[3]));
        }
    }
    end_turn();
}

extern "C" __global__ void __launch_bounds__(kThreads) norm_rows(
        const bf16* hidden, const bf16* weight, bf16* normed, int size, float eps) {
    norm<false>(nullptr, hidden, weight, nullptr, normed, 0, size, eps);
}

extern "C" __global__ void __launch_bounds__(kThreads) add_norm_rows(
        const float* parts, const bf16* residual, const bf16* weight, bf16* summed,
        bf16* normed, int splits, int size, float eps) {
    norm<true>(parts, residual, weight, summed, normed, splits, size, eps);
}
