// A head of a row of qkv, which eight threads hold: the sum of its parts, its norm, RoPE.
#pragma once
#include "product.cuh"

constexpr int kHalf = HEAD_DIM / 2;
constexpr int kHeadThreads = 8;
constexpr int kVectors = kHalf / (4 * kHeadThreads);  // of four, of each half, of a thread

// The first element of the thread's vector `n` of a half.
__device__ __forceinline__ int element(int n) {
    return 4 * (n * kHeadThreads + threadIdx.x % kHeadThreads);
}

struct Head {
    float halves[2][kVectors][4];
};

// Of bf16, as stored.
struct NormWeight {
    uint2 halves[2][kVectors];
};

__device__ __forceinline__ float at(const uint2& four, int i) {
    const unsigned pair = i < 2 ? four.x : four.y;
    return i % 2 ? high_half(pair) : low_half(pair);
}

__device__ __forceinline__ NormWeight norm_weight(const bf16* weight, bool is_there) {
    NormWeight got;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < kVectors; ++n)
            got.halves[half][n] =
                load_constant_pair(weight + half * kHalf + element(n), is_there);
    }
    return got;
}

// Cosines and sines of a row, [head_dim / 2] each: as the halves of a head.
__device__ __forceinline__ Head rotation(
        const float* cosines, const float* sines, int row, bool is_there) {
    Head got;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float* from = (half ? sines : cosines) + (is_there ? row * kHalf : 0);
#pragma unroll
        for (int n = 0; n < kVectors; ++n) {
            const uint2 low = load_constant_pair(from + element(n), is_there);
            const uint2 high = load_constant_pair(from + element(n) + 2, is_there);
            const unsigned words[4] = {low.x, low.y, high.x, high.y};
#pragma unroll
            for (int i = 0; i < 4; ++i)
                got.halves[half][n][i] = __uint_as_float(words[i]);
        }
    }
    return got;
}

// Loads of one part of a head, and their addition.
struct Part {
    uint4 halves[2][kVectors];

    __device__ __forceinline__ void load(const float* from, bool is_there) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int n = 0; n < kVectors; ++n)
                halves[half][n] = load_handed(from + half * kHalf + element(n), is_there);
        }
    }

    __device__ __forceinline__ void add_to(Head& sum) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int n = 0; n < kVectors; ++n) {
                const uint4& four = halves[half][n];
                const unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    sum.halves[half][n][i] += __uint_as_float(words[i]);
            }
        }
    }
};

// By all threads of a warp: what a head is multiplied with to be normed.
__device__ __forceinline__ float norm_factor(const Head& head, float eps) {
    float squares = 0.0f;
#pragma unroll
    for (int n = 0; n < kVectors; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float first = head.halves[0][n][i], second = head.halves[1][n][i];
            squares += first * first + second * second;
        }
    }
#pragma unroll
    for (int mask = kHeadThreads / 2; mask; mask /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, mask);
    return rsqrtf(squares / HEAD_DIM + eps);
}

__device__ __forceinline__ void multiply_head(
        Head& head, float factor, const NormWeight& weight) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < kVectors; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                head.halves[half][n][i] *= factor * at(weight.halves[half][n], i);
        }
    }
}

__device__ __forceinline__ void rotate(Head& head, const Head& turn) {
#pragma unroll
    for (int n = 0; n < kVectors; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float before = head.halves[0][n][i], after = head.halves[1][n][i];
            const float cosine = turn.halves[0][n][i], sine = turn.halves[1][n][i];
            head.halves[0][n][i] = before * cosine - after * sine;
            head.halves[1][n][i] = after * cosine + before * sine;
        }
    }
}

// Rounds the head into `to`.
__device__ __forceinline__ void store_head(bf16* to, const Head& head) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < kVectors; ++n) {
            const float(&four)[4] = head.halves[half][n];
            *(uint2*)(to + half * kHalf + element(n)) =
                make_uint2(pack(four[0], four[1]), pack(four[2], four[3]));
        }
    }
}
