"""Write a GGUF model with random weights: generate.py FILE. Its architecture is that of Llama 7B with 18 of 32 layers.

The weights are Q8_0 (blocks of 32 weights: a 16-bit scale and 32 bytes), about 4.15 GB. Loading reads every weight and
does not depend on its value.
"""

import sys

import gguf
import numpy as np
import numpy.typing as npt

_LAYERS, _WIDTH, _FEED_FORWARD, _VOCABULARY, _HEADS = 18, 4096, 11008, 32000, 32
_BLOCK_WEIGHTS, _BLOCK_BYTES = 32, 34
_Q8_0_FILE = 7  # LLAMA_FTYPE_MOSTLY_Q8_0 of llama.h


def main(path: str) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    _add_parameters(writer)
    _add_tokens(writer)
    for name, shape in _matrices():
        writer.add_tensor(name, _random_blocks(*shape), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    for name in ("output_norm", *(f"blk.{layer}.{norm}" for layer in range(_LAYERS)
                                  for norm in ("attn_norm", "ffn_norm"))):
        writer.add_tensor(f"{name}.weight", np.ones(_WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_parameters(writer: gguf.GGUFWriter) -> None:
    writer.add_context_length(2048)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(_Q8_0_FILE)
    writer.add_vocab_size(_VOCABULARY)


def _add_tokens(writer: gguf.GGUFWriter) -> None:
    """Special tokens, one per byte, and numbered words."""
    kinds = gguf.TokenType
    tokens = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL),
              *((f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256))]
    tokens += [(f"word{number}", kinds.NORMAL) for number in range(_VOCABULARY - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([0.0] * _VOCABULARY)
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _matrices() -> list[tuple[str, tuple[int, int]]]:
    """Name, and rows and columns in weights."""
    square, up = (_WIDTH, _WIDTH), (_FEED_FORWARD, _WIDTH)
    layer = {"attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square,
             "ffn_gate": up, "ffn_up": up, "ffn_down": (_WIDTH, _FEED_FORWARD)}
    return [("token_embd.weight", (_VOCABULARY, _WIDTH)), ("output.weight", (_VOCABULARY, _WIDTH)),
            *((f"blk.{number}.{name}.weight", shape) for number in range(_LAYERS) for name, shape in layer.items())]


def _random_blocks(rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """Shape (rows, bytes of a row). The scale is small, so that no computation overflows."""
    blocks = np.random.default_rng(rows).integers(0, 256, (rows * columns // _BLOCK_WEIGHTS, _BLOCK_BYTES), np.uint8)
    blocks[:, :2] = np.array([2e-4], np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


if __name__ == "__main__":
    main(sys.argv[1])
