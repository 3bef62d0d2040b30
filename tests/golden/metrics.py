#!/usr/bin/env python3
"""Writes metrics.json, what scikit-learn and scipy say of random data: metrics.py, by the Python of `make peers`.

tests/ranks/metrics/golden_ranks.cpp compares accel's metrics with it, updated in chunks and over several ranks. Run it
again where the pinned version of scikit-learn or scipy changes. A value that is not a number is null in the file.
"""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import scipy
import sklearn
from scipy import special, stats
from sklearn import metrics

FILE = Path(__file__).resolve().parent / "metrics.json"
SCORES = {"precision": metrics.precision_score, "recall": metrics.recall_score, "f1": metrics.f1_score}
ZERO_DIVISIONS = [0.0, 1.0, math.nan]


def plain(value):
    """Numbers as JSON has them."""
    if isinstance(value, (np.ndarray, list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (int, np.integer, str, bool)):
        return value if isinstance(value, (str, bool)) else int(value)
    return None if math.isnan(value) else float(value)


def scores_of(references, predictions, classes):
    for zero_division in ZERO_DIVISIONS:
        for name, score in SCORES.items():
            common = {"metric": name, "zero_division": zero_division}
            if classes == 2:
                for pos_label in (0, 1):
                    value = score(references, predictions, average="binary", pos_label=pos_label,
                                  zero_division=zero_division)
                    yield {**common, "average": "binary", "pos_label": pos_label, "value": value}
            for average in ("macro", "micro", "weighted"):
                for all_classes in (False, True):
                    labels = range(classes) if all_classes else None
                    value = score(references, predictions, average=average, labels=labels, zero_division=zero_division)
                    yield {**common, "average": average, "all_classes": all_classes, "value": value}
            value = score(references, predictions, average=None, labels=range(classes), zero_division=zero_division)
            yield {**common, "average": "none", "value": value}


def classification(name, references, predictions, classes):
    return {"name": name, "num_classes": classes, "references": references, "predictions": predictions,
            "accuracy": metrics.accuracy_score(references, predictions),
            "matthews": metrics.matthews_corrcoef(references, predictions),
            "confusion": metrics.confusion_matrix(references, predictions, labels=range(classes)),
            "scores": list(scores_of(references, predictions, classes))}


def classifications(rng):
    for classes, rows in ((2, 61), (3, 97), (10, 211), (37, 150)):
        references = rng.integers(classes, size=rows)
        noisy = np.where(rng.random(rows) < 0.6, references, rng.integers(classes, size=rows))
        yield classification(f"random_{classes}", references, noisy, classes)
    for classes, rows in ((2, 83), (5, 120)):
        share = 0.05 ** np.arange(classes)
        share /= share.sum()
        references = rng.choice(classes, size=rows, p=share)
        yield classification(f"imbalanced_{classes}", references, rng.choice(classes, size=rows, p=share), classes)
    some = np.array([0, 2, 5])
    yield classification("missing_classes", some[rng.integers(3, size=40)], some[rng.integers(2, size=40)], 7)
    yield classification("never_right", np.zeros(20, int), np.ones(20, int), 4)
    references = rng.integers(4, size=30)
    yield classification("perfect", references, references, 4)
    yield classification("constant_prediction", references, np.full(30, 2), 4)
    yield classification("only_negatives", np.zeros(9, int), np.zeros(9, int), 2)
    yield classification("one_row", np.array([1]), np.array([1]), 3)


def correlation(name, x, y):
    return {"name": name, "x": x, "y": y, "pearson": stats.pearsonr(x, y).statistic,
            "spearman": stats.spearmanr(x, y).statistic}


def correlations(rng):
    x = rng.normal(size=157)
    yield correlation("random", x, 0.5 * x + rng.normal(size=157))
    yield correlation("far_from_zero", x + 1e4, rng.normal(size=157) - 2e4)
    yield correlation("monotone", x, np.exp(3 * x))
    yield correlation("line", x, 3 - 2 * x)
    yield correlation("ties", rng.integers(4, size=80).astype(float), rng.integers(6, size=80).astype(float))
    yield correlation("half_ties", np.round(x, 0), x + rng.normal(size=157))
    yield correlation("constant", x[:20], np.full(20, 0.1))
    yield correlation("two_rows", np.array([1.0, 2.0]), np.array([5.0, 3.0]))
    with_nan = x[:12].copy()
    with_nan[5] = math.nan
    yield correlation("not_a_number", with_nan, x[:12])


def perplexity(rng):
    logits = rng.normal(scale=3.0, size=(53, 7))
    targets = rng.integers(7, size=53)
    ignored = rng.random(53) < 0.2
    nll = -special.log_softmax(logits, axis=1)[np.arange(53), targets]
    return {"logits": logits, "targets": np.where(ignored, -100, targets), "value": math.exp(nll[~ignored].mean()),
            "sum_nll": nll[~ignored].sum(), "tokens": int((~ignored).sum())}


def mean(rng):
    values, weights = rng.normal(size=101) * 10.0 ** rng.integers(-3, 4, size=101), rng.random(101)
    return {"values": values, "weights": weights, "mean": values.mean(), "weighted": np.average(values, weights=weights)}


def main():
    warnings.simplefilter("ignore")  # of scores that are not defined, which is what zero_division is for
    rng = np.random.default_rng(20)
    golden = {"versions": {"scikit-learn": sklearn.__version__, "scipy": scipy.__version__, "numpy": np.__version__},
              "classification": list(classifications(rng)), "correlation": list(correlations(rng)),
              "perplexity": perplexity(rng), "mean": mean(rng)}
    FILE.write_text(json.dumps(plain(golden), separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n",
                    encoding="utf-8")


if __name__ == "__main__":
    main()
