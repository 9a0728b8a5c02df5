// All tokens of a draft for every request, in one cooperative launch of a block a
// processor.
//
// Tile n of 16 tokens of the vocabulary is block n % BLOCKS's and there warp
// n / BLOCKS % WARPS's. Every thread keeps its own bytes of its warp's tiles: one tile
// in registers, KEPT others in shared memory, as far as there is room. Where a warp has
// more tiles, they take turns in the registers (TURNS); the next is on its way while
// one is used, and the first of the next token while blocks agree on this one.
//
// fp8 is widened once, if all tiles stay and there is room for them (WIDE), else at
// every token.
//
// Logits are bit for bit those of draft.cu: the same operands and order of sums.
#include "draft_slots.cuh"
#include "draft_tiles.cuh"

constexpr int kRowsBytes = kMostRows * (2 * RANK + 64);
constexpr int kFixedBytes = kRowsBytes + kMostRows * kWarps * 8 + 16;

struct Draft {
    const void* w2;
    const float* scales;
    const bf16* w1;
    const float* base;
    const long long* previous;
    long long* chosen;
    int requests, tokens, vocabulary;
};

// Shared memory of a block; the tiles that are kept come after it.
struct Shared {
    unsigned char* rows;  // of w1, of the token before of each request
    Key* best;            // [request][warp]
    unsigned* launch;     // the number of the present one
    int* has_ended;       // whether this launch must end at once

    __device__ __forceinline__ explicit Shared(unsigned char* memory)
        : rows(memory), best((Key*)(memory + kRowsBytes)),
          launch((unsigned*)(best + kMostRows * kWarps)), has_ended((int*)launch + 1) {}
};

// Base logits of a tile, for sums as `multiply` leaves them; `from` are those of the
// first output and request of a thread.
__device__ __forceinline__ void load_base(
        float (&base)[4], const Draft& draft, const float* from, int tile,
        bool is_there) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int output = tile * kOutputs + 8 * (i / 2);
        const bool has_request = 2 * t + i % 2 < draft.requests;
        base[i] = load_handed_float(
            from + output + i % 2 * draft.vocabulary,
            is_there && has_request && output + g < draft.vocabulary);
    }
}

__device__ __forceinline__ void judge(
        Key (&best)[2], const Draft& draft, const float (&base)[4],
        const float (&sums)[4], int tile) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int output = tile * kOutputs + 8 * (i / 2) + g;
        if (output < draft.vocabulary && 2 * t + i % 2 < draft.requests)
            best[i % 2] = greater(best[i % 2], key_of(base[i] + sums[i], output));
    }
}

// The row of w1 of the token before of request `warp`, into shared memory.
template <bool kFp8>
__device__ __forceinline__ void put_row(
        const Draft& draft, const Shared& shared, long long token) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool has_part = 8 * lane < RANK;
    const uint4 part = load_constant(draft.w1 + token * RANK + 8 * lane, has_part);
    if (has_part) *(uint4*)(shared.rows + warp * kRowBytes<kFp8> + 16 * lane) = part;
}

// Puts the best of this warp where all of the block find it.
__device__ __forceinline__ void share_best(const Shared& shared, Key (&best)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            best[i] = greater(best[i], __shfl_xor_sync(kAll, best[i], mask));
    }
    if (lane < 4) {
        shared.best[2 * lane * kWarps + warp] = best[0];
        shared.best[(2 * lane + 1) * kWarps + warp] = best[1];
    }
}

// Of request `warp`: takes the best of this block to all others, and of theirs the best
// as the token; its row is then in shared memory. Who cannot ends the launch.
template <bool kFp8>
__device__ __forceinline__ void agree(
        const Draft& draft, const Slots& slots, const Shared& shared, int n) {
    const int request = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned launch = *shared.launch;
    const bool has_next = n + 1 < draft.tokens;
    Key best = lane < kWarps ? shared.best[request * kWarps + lane] : 0;
    best = best_of_warp(best);
    Word* const row = slots.of(n, request);
    dawdle();
    if (lane == 0) hand_over(row + blockIdx.x, word_of(best, launch));
    // The row of the winner, whoever that is, is on its way while all agree.
    if (has_next && 64 * lane < RANK)
        fetch_ahead(draft.w1 + (long long)token_of(best) * RANK + 64 * lane);
    if (!has_next && blockIdx.x != 0) return;
    Word word;
    if (!slots.best_of_all(word, row, launch)) {
        if (lane == 0) *shared.has_ended = 1;
        return;
    }
    dawdle();
    const unsigned token = token_in(word);
    if (blockIdx.x == 0 && lane == 0)
        draft.chosen[n * draft.requests + request] = token;
    if (has_next) put_row<kFp8>(draft, shared, token);
}

// The tokens before the first, and what tells this launch from others.
template <bool kFp8>
__device__ __forceinline__ void start(
        const Draft& draft, const Slots& slots, const Shared& shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == kWarps - 1 && lane == 0) {
        // In this order: who ends a launch early sets the flag first.
        *shared.launch = slots.launch();
        if (look_at_flag(slots.abort)) *shared.has_ended = 1;
    }
    if (warp < draft.requests) {
        const long long token = load_handed_long(draft.previous + warp);
        // After an abort there may be no token.
        if (look_at_flag(slots.abort)) {
            if (lane == 0) *shared.has_ended = 1;
        } else {
            put_row<kFp8>(draft, shared, token);
        }
        if (lane < draft.tokens) fetch_ahead(slots.of(lane, warp) + blockIdx.x);
    }
}

template <bool kFp8>
__device__ __forceinline__ void draft_tokens(
        const Draft& draft, const SlotMemory& slot_memory, int room) {
    DYNAMIC_SHARED(memory);
    if ((int)blockIdx.x == ABSENT) return;
    begin_turn();
    wait_turn();
    const Shared shared(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) *shared.has_ended = 0;

    constexpr int kStep = WARPS * BLOCKS;  // tiles from one of a warp to its next
    const int tiles = (draft.vocabulary + kOutputs - 1) / kOutputs;
    const int first = warp * BLOCKS + blockIdx.x;
    const int count = first < tiles ? (tiles - first - 1) / kStep + 1 : 0;
    const int fitting = (room - warp + kWarps - 1) / kWarps;
    const int kept = max(0, min(min(fitting, KEPT), count - 1)), passing = count - kept;
    unsigned char* const own_tiles =
        memory + kFixedBytes + warp * kTileBytes<kFp8> + 16 * lane;

    const float* bases = draft.base + lane % 4 * 2 * draft.vocabulary + lane / 4;
    uint4 loaded[kUnits<kFp8>][2];
    float scales[1 + kKept][kScales], base[1 + kKept][4];  // the tile, and kept ones
    const Source<kFp8> source(draft.w2, draft.vocabulary, first);
#pragma unroll
    for (int unit = 0; unit < kUnits<kFp8>; ++unit) {
        loaded[unit][0] = source.load(unit, 0);
        loaded[unit][1] = source.load(unit, 1);
    }
    load_scales<kFp8>(scales[0], draft.scales, first, count > 0);
    load_base(base[0], draft, bases, first, true);
#pragma unroll
    for (int n = 0; n < KEPT; ++n) {
        if (n >= kept) break;
        const int number = first + (passing + n) * kStep;
        const Source<kFp8> source(draft.w2, draft.vocabulary, number);
#pragma unroll
        for (int i = 0; i < 2 * kUnits<kFp8>; ++i)
            copy(own_tiles + n * kWarps * kTileBytes<kFp8> + i * kCopyBytes,
                 source.at(i / 2, i % 2), source.is_there[i % 2]);
        load_scales<kFp8>(scales[1 + n], draft.scales, number, true);
        load_base(base[1 + n], draft, bases, number, true);
    }
    close_copies();
    __syncthreads();
    const Slots slots(slot_memory, draft.requests);
    start<kFp8>(draft, slots, shared);
    __syncthreads();
    // The first rows of w1 come before the tile does.
    int has_ended = *shared.has_ended;
    Unit<kFp8> tile[kUnits<kFp8>];
#pragma unroll
    for (int unit = 0; unit < kUnits<kFp8>; ++unit) {
        put_off(loaded[unit][0], has_ended);
        put_off(loaded[unit][1], has_ended);
        tile[unit] = Unit<kFp8>(loaded[unit][0], loaded[unit][1]);
    }
    wait_for_copies<0>();
    if constexpr (kWide<kFp8>) {
        for (int n = 0; n < kept; ++n)
            widen_tile(own_tiles + n * kWarps * kTileBytes<kFp8>);
    }

    for (int n = 0; n < draft.tokens && !has_ended; ++n) {
        const bool has_next = n + 1 < draft.tokens;
        const float* const next_bases = bases + draft.requests * draft.vocabulary;
        const Rows rows = {shared.rows, draft.requests};
        Key best[2] = {0, 0};  // of requests 2t and 2t + 1
#pragma unroll 1
        for (int i = 0; i < (TURNS ? passing : min(passing, 1)); ++i) {
            const bool is_last = !TURNS || i + 1 == passing;
            const int number = first + i * kStep;
            const int next = is_last ? first : number + kStep;
            const bool reloads = TURNS && passing > 1 && (!is_last || has_next);
            const Source<kFp8> source(draft.w2, draft.vocabulary, next);
            const int with = TURNS && i > 0 ? 0 : kept;  // kept ones are done once
            float sums[1 + kKept][4] = {};
            // A warp keeps KEPT tiles or one less.
            if (KEPT > 0 && with == KEPT)
                multiply_tiles<kFp8, KEPT>(sums, tile, own_tiles, scales, rows, source,
                                           reloads);
            else if (KEPT > 1 && with == KEPT - 1)
                multiply_tiles<kFp8, kKept - 1>(sums, tile, own_tiles, scales, rows,
                                                source, reloads);
            else
                multiply_tiles<kFp8, 0>(sums, tile, own_tiles, scales, rows, source,
                                        reloads);
            if (reloads) load_scales<kFp8>(scales[0], draft.scales, next, true);
            judge(best, draft, base[0], sums[0], number);
            load_base(base[0], draft, is_last ? next_bases : bases, next,
                      !is_last || has_next);
#pragma unroll
            for (int m = 0; m < KEPT; ++m) {
                if (m >= with) break;
                const int other = first + (passing + m) * kStep;
                judge(best, draft, base[1 + m], sums[1 + m], other);
                load_base(base[1 + m], draft, next_bases, other, has_next);
            }
        }
        bases = next_bases;
        share_best(shared, best);
        __syncthreads();
        if (warp < draft.requests) agree<kFp8>(draft, slots, shared, n);
        __syncthreads();
        has_ended = *shared.has_ended;
    }
    // All blocks have read the number of this launch, or will see that it has ended.
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (has_ended)
            release(slots.launches, *shared.launch);
        else
            *slots.launches = *shared.launch;
    }
    if (has_ended) slots.clear(draft.tokens);
    end_turn();
}

#define DRAFT(NAME, FP8)                                                               \
    extern "C" __global__ void __launch_bounds__(32 * kWarps, 1) NAME(                 \
            const void* w2, const float* scales, const bf16* w1, const float* base,    \
            const long long* previous, long long* chosen, Word* slots,                 \
            unsigned* launches, int* abort, int deadline_ns, int requests, int tokens, \
            int vocabulary, int room) {                                                \
        draft_tokens<FP8>({w2, scales, w1, base, previous, chosen, requests, tokens,   \
                           vocabulary}, {slots, launches, abort, deadline_ns}, room);  \
    }

DRAFT(draft_tokens_bf16, false)
DRAFT(draft_tokens_fp8, true)
