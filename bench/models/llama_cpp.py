# SPDX-License-Identifier: Apache-2.0
"""llama.cpp on the decoders of definitions.py, as a contestant (turns.py). Runs in an interpreter that has xllamacpp and gguf:

    python llama_cpp.py MODEL THREADS

Writes a model of the same sizes with random weights, in bfloat16, Q8_0 or Q4_0, reads a prompt of 512 tokens, and makes
tokens behind it. A step is what its server says that a token took: its own product of 1024 by 260 words, and choosing one of
them, are in that, less than a hundredth. Its results are not held against anything: the weights are others.
"""
import os
import sys
import tempfile

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # with two cores, threads that spin keep the server's own from running

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import xllamacpp  # noqa: E402

import turns  # noqa: E402

WIDTH, LAYERS, HEADS, GROUPS, HEAD, CACHE = 1024, 8, 16, 4, 64, 512
TYPES = {"decoder": "F32", "decoder bf16": "BF16", "decoder w8a16": "Q8_0", "decoder w4a16": "Q4_0"}
TOKENS = 16  # of a turn


def write(path, kind):
    random = np.random.default_rng(1)
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(4096)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(4 * WIDTH)
    out.add_head_count(HEADS)
    out.add_head_count_kv(GROUPS)
    out.add_rope_dimension_count(HEAD)
    out.add_layer_norm_rms_eps(1e-6)
    words = ["<unk>", "<s>", "</s>", "a", *(f"<0x{i:02X}>" for i in range(256))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, gguf.TokenType.NORMAL, *[gguf.TokenType.BYTE] * 256]
    out.add_vocab_size(len(words))
    out.add_tokenizer_model("llama")
    out.add_token_list(words)
    out.add_token_scores([0.0] * len(words))
    out.add_token_types(kinds)

    def matrix(name, given, taken):
        weight = ((random.random((given, taken), dtype=np.float32) * 2 - 1) / np.sqrt(taken)).astype(np.float32)
        stored = gguf.GGMLQuantizationType[kind]
        out.add_tensor(name, gguf.quants.quantize(weight, stored), raw_dtype=stored)

    matrix("token_embd.weight", len(words), WIDTH)
    matrix("output.weight", len(words), WIDTH)
    out.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for i in range(LAYERS):
        for name, given, taken in (("attn_q", HEADS * HEAD, WIDTH), ("attn_k", GROUPS * HEAD, WIDTH), ("attn_v", GROUPS * HEAD, WIDTH),
                                   ("attn_output", WIDTH, HEADS * HEAD), ("ffn_gate", 4 * WIDTH, WIDTH), ("ffn_up", 4 * WIDTH, WIDTH),
                                   ("ffn_down", WIDTH, 4 * WIDTH)):
            matrix(f"blk.{i}.{name}.weight", given, taken)
        for name in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"blk.{i}.{name}.weight", np.ones(WIDTH, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    name, threads = sys.argv[1:]
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "model.gguf")
    write(path, TYPES[name])
    settings = xllamacpp.CommonParams()
    settings.model.path = path
    settings.n_ctx, settings.n_parallel, settings.warmup = 1024, 1, False
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(settings)
    prompt = [1] + [3] * (CACHE - 1)

    def tokens(count):
        done = server.handle_completions({"prompt": prompt, "n_predict": count, "ignore_eos": True, "cache_prompt": True, "temperature": 0})
        return done["timings"]["predicted_ms"] / done["timings"]["predicted_n"] / 1e3

    once = tokens(TOKENS)
    turns.say(first=None, apart=None)
    for line in sys.stdin:
        once = tokens(max(TOKENS, int(float(line) / once)))
        turns.say(step=once)
    folder.cleanup()
    os._exit(0)


if __name__ == "__main__":
    main()
