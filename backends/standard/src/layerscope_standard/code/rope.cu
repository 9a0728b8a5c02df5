// Norms of query and key where the family has them, RoPE, and the new rows of the cache.
// A warp takes four heads of rows; the parts of the qkv product are added here.
#include "rope.cuh"

constexpr int kHeads = 32 / kHeadThreads;  // of a block
constexpr int kAtOnce = 4;                 // parts that are in flight

extern "C" __global__ void __launch_bounds__(32, 1) rope_kv_write(
        const float* parts, const float* cosines, const float* sines,
        const bf16* query_norm, const bf16* key_norm, const long long* slots,
        bf16* queries, bf16* keys, bf16* values, int rows, int splits, int query_heads,
        int kv_heads, float eps) {
    begin_turn();
    if constexpr (!LOADS_EARLY) wait_turn();
    const int heads = query_heads + 2 * kv_heads;
    const int place = blockIdx.x * kHeads + threadIdx.x / kHeadThreads;
    const bool is_there = place < rows * heads;
    const int own = is_there ? place : 0, row = own / heads, number = own % heads;
    const bool is_query = number < query_heads;
    const bool is_value = number >= query_heads + kv_heads;
    const bf16* weight = is_query ? query_norm : key_norm;
    const bool is_normed = !is_value && weight != nullptr;
    const Head turn = rotation(cosines, sines, row, !is_value);
    const NormWeight weights = norm_weight(weight, is_normed);
    bf16* to = queries + ((long long)row * query_heads + number) * HEAD_DIM;
    if (!is_query) {
        const long long slot = load_handed_long(slots + row) * kv_heads;
        to = is_value ? values + (slot + number - query_heads - kv_heads) * HEAD_DIM
                      : keys + (slot + number - query_heads) * HEAD_DIM;
    }
    if constexpr (LOADS_EARLY) wait_turn();

    Head head = {};
    const long long stride = (long long)rows * heads * HEAD_DIM;
    const float* from = parts + (long long)own * HEAD_DIM;
#pragma unroll 1
    for (int first = 0; first < splits; first += kAtOnce) {
        Part loaded[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n)
            loaded[n].load(from + (first + n) * stride, first + n < splits);
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) loaded[n].add_to(head);
    }
    const float factor = norm_factor(head, eps);
    if (is_normed) multiply_head(head, factor, weights);
    if (!is_value) rotate(head, turn);
    dawdle();
    if (is_there) store_head(to, head);
    end_turn();
}
