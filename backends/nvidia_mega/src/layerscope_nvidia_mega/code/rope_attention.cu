// Attention that makes its own queries, keys and values: every block reads the parts of
// the qkv product for its query heads, norms and rotates them, and keeps them in shared
// memory. A block whose tiles have new tokens does the same with their keys and values,
// which go to the cache and right into their place of the tile. No kernel is needed
// between the product and attention.
//
// Macros beside those of attention.cuh: SPLITS, parts of the product.
//
// Bit for bit what rope_kv_write and attention give for the same parts.
#include "attention.cuh"
#include "rope.cuh"

constexpr int kQueryStride = kKeyStride;
constexpr int kAtOnce = SPLITS < 2 ? SPLITS : 2;  // parts that are in flight
// Half of the registers are left to the predecessor, where half are enough.
constexpr int kResident =
    kThreads <= 384 && kAtOnce == 1 && HEAD_DIM <= 128 ? 2 : 1;
constexpr int kFresh = (2 * TOKENS + MATRIX_ROWS - 1) / MATRIX_ROWS;
static_assert(kThreads == kHeadThreads * MATRIX_ROWS, "a row of the matrices a head");

// A new key or value that this thread helps to make.
struct Fresh {
    bool is_there, is_value;
    int token;  // among the new ones

    __device__ __forceinline__ Fresh(const Block& block, int round) {
        const int number = round * MATRIX_ROWS + (int)threadIdx.x / kHeadThreads;
        is_value = number >= TOKENS;
        token = number % TOKENS;
        const int tile = (block.context + token) / kTokens - block.first_tile;
        is_there = number < 2 * TOKENS && tile >= 0 && tile < block.tiles;
    }
};

// Grid: splits, KV heads, requests. Block: 128 threads for every 16 rows.
extern "C" __global__ void __launch_bounds__(kThreads, kResident) rope_attention(
        const float* products, const float* cosines, const float* sines,
        const bf16* query_norm, const bf16* key_norm, bf16* keys, bf16* values,
        const int* page_table, float* parts, float2* stats, int pages_per_request,
        int context, int tiles_per_split, float scale, float eps) {
    DYNAMIC_SHARED(shared);
    begin_turn();
    if constexpr (!LOADS_EARLY) wait_turn();
    const Block block = block_of(shared, keys, values, page_table, pages_per_request,
                                 context, tiles_per_split);
    block.fetch_old();
    block.fetch_rest(context + TOKENS);  // zeros behind the last token
    const int kv_heads = gridDim.y, query_heads = kv_heads * GROUP;
    const int heads = query_heads + 2 * kv_heads, rows = gridDim.z * TOKENS;
    const int first_row = blockIdx.z * TOKENS;
    const bool has_norms = query_norm != nullptr;
    const bool has_fresh = (block.first_tile + block.tiles) * kTokens > context;

    const int own = threadIdx.x / kHeadThreads, token = own / GROUP;
    const bool is_there = token < TOKENS;
    const Head turn = rotation(cosines, sines, first_row + token, is_there);
    const NormWeight weight = norm_weight(query_norm, has_norms);
    NormWeight key_weight = {};
    if (has_fresh) key_weight = norm_weight(key_norm, has_norms);
    if constexpr (LOADS_EARLY) wait_turn();

    const auto head_at = [&](int row, int head) {
        return products + ((long long)(first_row + row) * heads + head) * HEAD_DIM;
    };
    const long long stride = (long long)rows * heads * HEAD_DIM;
    const float* from =
        head_at(is_there ? token : 0, blockIdx.y * GROUP + own % GROUP);
    Head query = {}, fresh[kFresh] = {};
#pragma unroll 1
    for (int first = 0; first < SPLITS; first += kAtOnce) {
        Part loaded[kAtOnce], more[kAtOnce][kFresh];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n)
            loaded[n].load(from + (first + n) * stride, is_there && first + n < SPLITS);
        if (has_fresh) {
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
#pragma unroll
                for (int round = 0; round < kFresh; ++round) {
                    const Fresh made(block, round);
                    const int head =
                        query_heads + made.is_value * kv_heads + (int)blockIdx.y;
                    more[n][round].load(
                        head_at(made.is_there ? made.token : 0, head) +
                            (first + n) * stride,
                        made.is_there && first + n < SPLITS);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) loaded[n].add_to(query);
        if (has_fresh) {
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
#pragma unroll
                for (int round = 0; round < kFresh; ++round)
                    more[n][round].add_to(fresh[round]);
            }
        }
    }

    unsigned char* rotated = shared + kSharedBytes;
    const float factor = norm_factor(query, eps);
    if (has_norms) multiply_head(query, factor, weight);
    rotate(query, turn);
    store_head((bf16*)(rotated + own * kQueryStride), query);
    if (has_fresh) {
#pragma unroll
        for (int round = 0; round < kFresh; ++round) {
            const Fresh made(block, round);
            const float factor = norm_factor(fresh[round], eps);
            if (!made.is_there) continue;
            if (!made.is_value) {
                if (has_norms) multiply_head(fresh[round], factor, key_weight);
                rotate(fresh[round],
                       rotation(cosines, sines, first_row + made.token, true));
            }
            const int at = context + made.token, tile = at / kTokens - block.first_tile;
            const long long head = (long long)block.slot(at) * kv_heads + blockIdx.y;
            store_head((made.is_value ? values : keys) + head * HEAD_DIM, fresh[round]);
            // Later tiles are copied from the cache, after barriers of this block.
            if (tile >= STAGES) continue;
            unsigned char* stage = block.stage(tile);
            store_head((bf16*)(made.is_value
                                   ? stage + kKeyBytes + at % kTokens * kValueStride
                                   : stage + at % kTokens * kKeyStride),
                       fresh[round]);
        }
    }
    // The rows of this thread's 16; the block meets before it reads the first tile.
    const int sixteen = threadIdx.x / (32 * kWarps), lane = threadIdx.x % 32;
    const unsigned char* mine =
        rotated + (16 * sixteen + lane / 4) * kQueryStride + 16 * (lane % 4);
    const auto part_of = [&](int i, int half) {
        return *(const uint4*)(mine + 8 * half * kQueryStride + 64 * i);
    };
    attend(block, part_of, parts, stats, scale);
    end_turn();
}
