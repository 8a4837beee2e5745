"""A prediction server as a tutorial would write it, by FastAPI and Keras: the peer of ``toolkit serve``.

    python benchmarks/serving/plain.py MODEL.keras LABELS PORT

It has none of the limits, checks and pages of the server. Each request is one image, computed by itself in a thread.
"""

import io
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import uvicorn
from fastapi import FastAPI, UploadFile
from PIL import Image

model: Any = keras.models.load_model(sys.argv[1])
labels = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
height, width, channels = model.input_shape[1:]
app = FastAPI()


def predict(image: UploadFile) -> dict[str, Any]:
    opened = Image.open(io.BytesIO(image.file.read())).convert("L" if channels == 1 else "RGB").resize((width, height))
    pixels = np.asarray(opened).reshape(1, height, width, channels)
    shares = np.asarray(model(pixels, training=False))[0]
    best = np.argsort(-shares)[:5].tolist()
    return {"guesses": [{"label": labels[index], "probability": float(shares[index])} for index in best]}


def health() -> dict[str, str]:
    return {"status": "ok"}


app.post("/predictions")(predict)
app.get("/health")(health)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[3]), log_level="error")
