"""Make a small folder of pictures to train on: stripes, whose direction and width say the class.

    python examples/make_pictures.py FOLDER [--classes 4] [--training 48] [--validation 12] [--size 64]

The same options make the same pictures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image


def stripes(label: int, size: int, numbers: np.random.Generator) -> np.ndarray:
    """A picture of class ``label``, uint8 of shape (size, size, 3): noise, and stripes of random phase and colour."""
    across, down = np.meshgrid(np.linspace(0, 1, size), np.linspace(0, 1, size))
    along = across if label % 2 == 0 else down
    wave = np.sin(2 * np.pi * (2 + 3 * (label // 2)) * along + numbers.uniform(0, 2 * np.pi))
    colour = numbers.uniform(40, 100, 3)
    return np.clip(128 + wave[:, :, None] * colour + numbers.normal(0, 30, (size, size, 3)), 0, 255).astype(np.uint8)


def make_pictures(folder: Path, *, classes: int = 4, training: int = 48, validation: int = 12, size: int = 64) -> None:
    """Write ``training`` and ``validation`` pictures of each class below ``folder``/train and ``folder``/val."""
    for part, (name, count) in enumerate({"train": training, "val": validation}.items()):
        for label in range(classes):
            place = folder / name / f"class-{label}"
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                numbers = np.random.default_rng((part, label, number))
                Image.fromarray(stripes(label, size, numbers)).save(place / f"{number:04}.png")


def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--training", type=int, default=48, help="pictures of each class to train on")
    parser.add_argument("--validation", type=int, default=12, help="pictures of each class to evaluate with")
    parser.add_argument("--size", type=int, default=64, help="sides of the pictures")
    options = parser.parse_args()
    sizes = {x: getattr(options, x) for x in ("classes", "training", "validation", "size")}
    make_pictures(options.folder, **sizes)
    print(f"{sizes['classes']} classes of {sizes['training']} + {sizes['validation']} pictures in {options.folder}")


if __name__ == "__main__":
    main()
