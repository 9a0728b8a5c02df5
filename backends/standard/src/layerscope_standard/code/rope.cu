// Norms of query and key where the family has them, RoPE, and the new rows of the cache.
// One warp a row and head; the parts of the qkv product are added here.
#include "product.cuh"

constexpr int kWarps = 4;
constexpr int kHalf = HEAD_DIM / 2;
constexpr int kOwn = kHalf / 32;  // elements of each half that a thread has

extern "C" __global__ void __launch_bounds__(32 * kWarps) rope_kv_write(
        const float* parts, const float* cosines, const float* sines,
        const bf16* query_norm, const bf16* key_norm, const long long* slots,
        bf16* queries, bf16* keys, bf16* values, int rows, int splits, int query_heads,
        int kv_heads, float eps) {
    begin_turn();
    if constexpr (!LOADS_EARLY) wait_turn();
    const int heads = query_heads + 2 * kv_heads, lane = threadIdx.x % 32;
    const int own = blockIdx.x * kWarps + threadIdx.x / 32;
    if (own >= rows * heads) return;
    const int row = own / heads, head = own % heads;
    const bool is_query = head < query_heads, is_value = head >= query_heads + kv_heads;
    const bf16* weight = is_query ? query_norm : key_norm;
    const bool is_normed = !is_value && weight != nullptr;

    float first[kOwn] = {}, second[kOwn] = {}, cosine[kOwn], sine[kOwn];
    float first_weight[kOwn], second_weight[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int at = lane * kOwn + i;
        cosine[i] = load_constant_float(cosines + row * kHalf + at, !is_value);
        sine[i] = load_constant_float(sines + row * kHalf + at, !is_value);
        first_weight[i] = is_normed ? low_half(weight[at]) : 1.0f;
        second_weight[i] = is_normed ? low_half(weight[at + kHalf]) : 1.0f;
    }
    if constexpr (LOADS_EARLY) wait_turn();
#pragma unroll 4
    for (int split = 0; split < splits; ++split) {
        const long long at = ((long long)split * rows * heads + own) * HEAD_DIM;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const float* part = parts + at + lane * kOwn + i;
            first[i] += load_handed_float(part, true);
            second[i] += load_handed_float(part + kHalf, true);
        }
    }
    if (is_normed) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
            squares += first[i] * first[i] + second[i] * second[i];
#pragma unroll
        for (int mask = 16; mask; mask /= 2)
            squares += __shfl_xor_sync(0xffffffffu, squares, mask);
        const float factor = rsqrtf(squares / HEAD_DIM + eps);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            first[i] *= factor * first_weight[i];
            second[i] *= factor * second_weight[i];
        }
    }
    bf16* to = queries + ((long long)row * query_heads + head) * HEAD_DIM;
    if (!is_query) {
        const long long slot = load_handed_long(slots + row) * kv_heads;
        to = is_value ? values + (slot + head - query_heads - kv_heads) * HEAD_DIM
                      : keys + (slot + head - query_heads) * HEAD_DIM;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int at = lane * kOwn + i;
        const float before = first[i], after = second[i];
        to[at] = narrow(is_value ? before : before * cosine[i] - after * sine[i]);
        to[at + kHalf] = narrow(is_value ? after : after * cosine[i] + before * sine[i]);
    }
    end_turn();
}
