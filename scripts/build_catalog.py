"""Rewrites prices, models and profiles of the public sources in our own schema: `python -m scripts.build_catalog`.

Reads the folder named by MARK_DATA (`catalog/` and `profiles/`, each with a README that names its sources) and
writes `mark/catalog/data`. The result is committed: its users need no sources. Entries there of BENCHMARKED, and
the file `assumed-current`, are edited by hand, and kept.
"""

from __future__ import annotations

import csv
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from mark.catalog.load import ASSUMED_PREFIX, load_models, load_prices, load_profiles, shipped_sets
from mark.catalog.schema import LAMBDA, format_profiles
from mark.domain.errors import MarkError
from mark.domain.models.profile import Evidence, LatencyPoint, Profile, Provenance

OUT = Path(__file__).parents[1] / "mark" / "catalog" / "data"
PRICE_DATE = "2026-07-20"
PRICE_SOURCES = {
    "specification": "instance-type reference of aws/karpenter-provider-aws, commit 1d92708, 2026-08-21; "
    "p2 and p3 from the EC2 spot advisor (memory) and the SkyPilot catalogue (GPU), amd64 as their family is",
    "accelerator_memory": "of one accelerator, or of the part that the type has: the same reference, as EC2 "
    "reports it (24 GB are 22.352 GiB); K80 and V100: EC2 user guide; Inferentia: AWS Neuron documentation",
    "on_demand": "zz_generated.pricing_aws.go of aws/karpenter-provider-aws, generated 2026-07-20: "
    "list prices, Linux",
    "spot": "an estimate: on demand x (1 - savings of the EC2 spot advisor, 2025-06-28, "
    "in alexei-led/spotinfo 5eedf20)",
    "interruption": "midpoint of the EC2 spot advisor's monthly bucket, 2025-06-28; "
    ">20 % has no upper edge and counts as a bucket of the others' width, 20-25 %",
    "credits": "EC2 user guide, key concepts for burstable performance instances; T2 launch credits: "
    "its chapter on standard mode; surplus price: EC2 on-demand pricing, T2/T3/T4g unlimited mode",
}
MORE_TYPES = """\
instance_type,vcpus,memory_gib,accelerator,accelerator_count,arch,on_demand_usd_per_hour,\
spot_usd_per_hour_est_2025,spot_interruption_bucket_2025
m7i.large,2,8,,,amd64,0.1008,0.03226,15-20%
m7i.xlarge,4,16,,,amd64,0.2016,0.09475,15-20%
m7i.2xlarge,8,32,,,amd64,0.4032,0.15322,>20%
m7i.4xlarge,16,64,,,amd64,0.8064,0.38707,5-10%
c6gn.medium,1,2,,,arm64,0.0432,,
c6gn.large,2,4,,,arm64,0.0864,,
c6gn.xlarge,4,8,,,arm64,0.1728,,
c7gn.medium,1,2,,,arm64,0.0624,,
c7gn.large,2,4,,,arm64,0.1248,,
c7gn.xlarge,4,8,,,arm64,0.2496,,
c8g.medium,1,2,,,arm64,0.03988,0.01077,<5%
c8g.large,2,4,,,arm64,0.07976,0.03111,<5%
c8g.xlarge,4,8,,,arm64,0.15952,0.05424,10-15%
c8g.2xlarge,8,16,,,arm64,0.31904,0.09571,>20%
c8g.4xlarge,16,32,,,arm64,0.63808,0.19142,>20%
g6f.large,2,8,L4,1,amd64,0.202,,
g6f.xlarge,4,16,L4,1,amd64,0.2375,,
g6f.2xlarge,8,32,L4,1,amd64,0.475,,
g6f.4xlarge,16,64,L4,1,amd64,0.95,,
gr6f.4xlarge,16,128,L4,1,amd64,1.066,,
g6e.xlarge,4,32,L40S,1,amd64,1.861,0.78162,5-10%
g6e.2xlarge,8,64,L40S,1,amd64,2.24208,0.82957,10-15%
g6e.4xlarge,16,128,L40S,1,amd64,3.00424,1.14161,>20%
g6e.8xlarge,32,256,L40S,1,amd64,4.52856,1.53971,>20%
g6e.12xlarge,48,384,L40S,4,amd64,10.49264,4.61676,>20%
g6e.16xlarge,64,512,L40S,1,amd64,7.57719,2.57624,15-20%
g6e.24xlarge,96,768,L40S,4,amd64,15.06559,3.91705,>20%
g6e.48xlarge,192,1536,L40S,8,amd64,30.13118,9.64198,>20%
g7.2xlarge,8,32,RTX PRO 4500,1,amd64,2.52,,
g7.4xlarge,16,64,RTX PRO 4500,1,amd64,3.04208,,
g7.8xlarge,32,128,RTX PRO 4500,1,amd64,4.08624,,
g7.12xlarge,48,192,RTX PRO 4500,2,amd64,7.12832,,
g7.24xlarge,96,384,RTX PRO 4500,4,amd64,14.25664,,
g7.48xlarge,192,768,RTX PRO 4500,8,amd64,28.51328,,
g7e.2xlarge,8,64,RTX PRO 6000,1,amd64,3.36312,,
g7e.4xlarge,16,128,RTX PRO 6000,1,amd64,3.99816,,
g7e.8xlarge,32,256,RTX PRO 6000,1,amd64,5.26824,,
g7e.12xlarge,48,512,RTX PRO 6000,2,amd64,8.28608,,
g7e.24xlarge,96,1024,RTX PRO 6000,4,amd64,16.57216,,
g7e.48xlarge,192,2048,RTX PRO 6000,8,amd64,33.14432,,
p4d.24xlarge,96,1152,A100,8,amd64,21.957642,7.24602,10-15%
p4de.24xlarge,96,1152,A100,8,amd64,27.44705,9.60647,<5%
p5.4xlarge,16,256,H100,1,amd64,6.88,,
p5.48xlarge,192,2048,H100,8,amd64,55.04,26.4192,>20%
p5en.48xlarge,192,2048,H200,8,amd64,63.296,22.78656,<5%
"""
"""Types that MARK_DATA lacks, of the same sources. EC2 reports no count for a part of an L4; it is one here."""
INTERRUPTION_PERCENT = {"<5%": 2.5, "5-10%": 7.5, "10-15%": 12.5, "15-20%": 17.5, ">20%": 22.5}
ACCELERATORS = {"a10g": "A10G", "inferentia": "Inferentia", "inferentia2": "Inferentia2"}
"""Spelt as their makers do."""
ACCELERATOR_MIB = {
    "K80": 12288,
    "V100": 16384,
    "T4": 16384,
    "A10G": 22888,
    "L4": 22888,
    "L40S": 45776,
    "RTX PRO 4500": 32768,
    "RTX PRO 6000": 98304,
    "A100": 40960,
    "H100": 81920,
    "H200": 144384,
    "Inferentia": 8192,
    "Inferentia2": 32768,
}
"""Memory of one accelerator."""
TYPE_MIB = {
    "g6f.large": 2861,
    "g6f.xlarge": 2861,
    "g6f.2xlarge": 5722,
    "g6f.4xlarge": 11444,
    "gr6f.4xlarge": 11444,
    "p4de.24xlarge": 81920,
}
"""Types whose accelerator has another memory: g6f and gr6f have an eighth to a half of an L4."""
MIB_PER_GIB = 1024
BASELINE_PERCENT = {"nano": 5, "micro": 10, "small": 20, "medium": 20, "large": 30, "xlarge": 40, "2xlarge": 40}
T2_BASELINE_PERCENT = BASELINE_PERCENT | {"xlarge": 22.5, "2xlarge": 17}
"""Per vCPU. The guide's credits per hour are this times vCPUs times 60, its maximum balance is 24 hours of them;
T3, T3a and T4g have the same rows."""

MODEL_NAMES = {
    "inception_v3": "inception-v3",
    "nasnet": "nasnet",
    "lstm_ptb": "lstm-ptb",
    "opennmt_ende": "opennmt-ende",
}
BENCHMARKED = ("resnet-50", "bert-base")
"""Models with published benchmarks on types of today; docs/hardware.md says how they were chosen."""
KAIROS_MODELS = ("ncf", "rm2", "wnd", "mtwnd", "dien")
KAIROS_DEEPRECSYS = {"ncf": "ncf", "rm2": "dlrm_rm2", "wnd": "wide_and_deep", "mtwnd": "mtwnd", "dien": "dien"}
MARK_ACCELERATORS = {"lstm-ptb": [], "inception-v3": ["K80", "T4"]}
"""Others: the K80 of the paper."""
MARK_DATE = "2020"
MARK_PAPER = "MArk (IEEE TCC 2020, ATC 2019)"
IMAGE_MIB = 0.11
TEXT_MIB = 0.01
IMAGE_SOURCE = "an average ImageNet photograph (ILSVRC2012: 138 GB in 1.28 million) and 1,000 scores"
TEXT_SOURCE = "a rule: a sentence or a feature vector per request with its answer, 10 KiB"
GIB = 2.0**30

LAMBDA_FACTOR = 1.8
"""Lambda over c5.large, MArk Table 2: 380/210 for Inception-v3 (1.81)."""
FIXED_SHARE = 0.5
"""Share of a full batch's time on p2.xlarge that a batch takes whatever its size; nobody published it."""
P2_BATCHES = (1, 2, 4, 8)
T3_LIKE_T2 = {"t3.micro": "t2.medium", "t3.small": "t2.medium", "t3.medium": "t2.medium", "t3.large": "t2.large"}
"""All have two vCPUs; the same size where Table 3 has it, its smallest of two vCPUs otherwise."""


def main() -> int:
    """Builds all files, reads them back, and says what stands where."""
    root = os.environ.get("MARK_DATA")
    if not root:
        print("set MARK_DATA to the folder that holds catalog/ and profiles/", file=sys.stderr)
        return 2
    catalog, profiles = Path(root) / "catalog", Path(root) / "profiles"
    (OUT / "profiles").mkdir(parents=True, exist_ok=True)
    _write_prices([*_rows(catalog / "ec2_us_east_1.csv"), *csv.DictReader(MORE_TYPES.splitlines())])
    _write_models(_rows(profiles / "mark_models_slo_batching.csv"), profiles)
    published = _mark_profiles(profiles)
    for found in (*published.values(), *_kairos_profiles(profiles).values()):
        _write(f"profiles/{found[0].model}.json", format_profiles(found))
    for name, found in _assumed_profiles(published).items():
        _write(f"profiles/{ASSUMED_PREFIX}{name}.json", format_profiles(found))
    return _read_back()


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _write(name: str, text: str) -> None:
    (OUT / name).write_text(text, encoding="utf-8")


def _read_back() -> int:
    try:
        print(f"{len(load_prices().types)} instance types, {len(load_models())} models")
        for name in load_models():
            found = load_profiles(name)
            print(f"{name}: {len(found.profiles)} profiles, {len(found.warnings)} warnings")
    except MarkError as error:
        print(error, file=sys.stderr)
        return 1
    print("assumed:", ", ".join(name for name in shipped_sets() if name.startswith(ASSUMED_PREFIX)))
    return 0


def _write_prices(rows: Iterable[Mapping[str, str]]) -> None:
    entries = [_price_entry(row) for row in rows]
    header = {"format": "mark-prices/1", "region": "us-east-1", "date": PRICE_DATE, "sources": PRICE_SOURCES}
    types = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
    text = json.dumps(header, indent=2).removesuffix("\n}") + f',\n  "types": [\n{types}\n  ]\n}}\n'
    _write(f"prices_us_east_1_{PRICE_DATE}.json", text)


def _price_entry(row: Mapping[str, str]) -> dict[str, object]:
    vcpus = int(row["vcpus"])
    entry: dict[str, object] = {
        "instance_type": row["instance_type"],
        "vcpus": vcpus,
        "memory_gib": float(row["memory_gib"]),
        "architecture": row["arch"] or "amd64",
        "on_demand_usd_per_hour": float(row["on_demand_usd_per_hour"]),
    }
    if row["spot_usd_per_hour_est_2025"]:
        entry["spot_usd_per_hour"] = float(row["spot_usd_per_hour_est_2025"])
        bucket = row["spot_interruption_bucket_2025"]
        entry["spot_interruption_percent_per_month"] = INTERRUPTION_PERCENT[bucket]
    if row["accelerator"]:
        name = ACCELERATORS.get(row["accelerator"], row["accelerator"])
        memory_mib = TYPE_MIB.get(row["instance_type"], ACCELERATOR_MIB[name])
        entry["accelerator"] = name
        entry["accelerator_count"] = int(row["accelerator_count"])
        entry["accelerator_memory_gib"] = round(memory_mib / MIB_PER_GIB, 3)
    family, size = row["instance_type"].split(".")
    if family in ("t2", "t3", "t3a", "t4g"):
        entry["credits"] = _credits(family, size, vcpus)
    return entry


def _credits(family: str, size: str, vcpus: int) -> dict[str, object]:
    is_t2 = family == "t2"
    baseline_percent = (T2_BASELINE_PERCENT if is_t2 else BASELINE_PERCENT)[size]
    earn_per_hour = round(vcpus * baseline_percent * 60 / 100, 6)
    return {
        "earn_credits_per_hour": earn_per_hour,
        "max_credits": round(24 * earn_per_hour, 6),
        "baseline_percent": baseline_percent,
        "launch_credits_per_vcpu": 30 if is_t2 else 0,
        "keeps_when_stopped": not is_t2,
        "unlimited": not is_t2,
        "surplus_usd_per_vcpu_hour": 0.04 if family == "t4g" else 0.05,
    }


def _write_models(rows: Iterable[Mapping[str, str]], profiles: Path) -> None:
    entries = [_mark_model(row) for row in rows]
    qos_ms = {
        row["item"].removesuffix(" QoS"): float(row["value"])
        for row in _rows(profiles / "kairos_paper_tables.csv")
        if row["table"] == "Table 3"
    }
    tables = {row["model"]: row for row in _rows(profiles / "deeprecsys_models.csv")}
    entries += [_kairos_model(name, qos_ms[name], tables[KAIROS_DEEPRECSYS[name]]) for name in KAIROS_MODELS]
    kept = json.loads((OUT / "models.json").read_text(encoding="utf-8"))["models"]
    entries += [entry for entry in kept if entry["name"] in BENCHMARKED]
    text = json.dumps({"format": "mark-models/1", "models": entries}, indent=2)
    _write("models.json", text + "\n")


def _mark_model(row: Mapping[str, str]) -> dict[str, object]:
    name = MODEL_NAMES[row["model"]]
    is_image = name in ("inception-v3", "nasnet")
    size_mb = float(row["size_mb"])
    return {
        "name": name,
        "latency_ms": float(row["slo_rt_max_ms"]),
        "target_percent": float(row["slo_service_level_percent"]),
        "objective_source": f"{MARK_PAPER}, Table 4 and section 5.1",
        "memory_gib": _up_to_a_tenth(size_mb * 1e6 / GIB + 0.5),
        "memory_source": f"a rule: the weights once ({size_mb:g} MB, Table 4) + 0.5 GiB, rounded up to 0.1; "
        "Table 3 bounds it from above: OpenNMT, 330 MB, ran on a t2.micro of 1 GiB",
        "payload_mib": IMAGE_MIB if is_image else TEXT_MIB,
        "payload_source": IMAGE_SOURCE if is_image else TEXT_SOURCE,
        "architectures": ["amd64"],
        "accelerators": MARK_ACCELERATORS.get(name, ["K80"]),
        "cpu": True,
        "redispatch": True,
    }


def _kairos_model(name: str, qos_ms: float, shape: Mapping[str, str]) -> dict[str, object]:
    tables = [part.split(" x ") for part in shape["embedding_tables_rows"].split("; ")]
    weights = sum(int(count) * int(rows) for count, rows in tables) * int(shape["embedding_dim"])
    return {
        "name": name,
        "latency_ms": qos_ms,
        "target_percent": 99,
        "objective_source": "Kairos (HPDC 2023), Table 3: 99th percentile",
        "memory_gib": _up_to_a_tenth(weights * 4 / GIB + 0.5),
        "memory_source": f"a rule: the embedding tables of DeepRecSys' {shape['model']} as 32-bit floats "
        "+ 0.5 GiB, rounded up to 0.1",
        "payload_mib": TEXT_MIB,
        "payload_source": TEXT_SOURCE,
        "architectures": ["amd64"],
        "accelerators": ["T4"],
        "cpu": True,
        "redispatch": True,
        "sizes": "kairos",
    }


def _up_to_a_tenth(value: float) -> float:
    return math.ceil(value * 10 - 1e-9) / 10


def _profile(
    model: str, instance_type: str, latency_ms_by_batch: Mapping[int, float], *, provenance: Provenance
) -> Profile:
    points = tuple(LatencyPoint(batch=b, latency_s=ms / 1000) for b, ms in sorted(latency_ms_by_batch.items()))
    return Profile(model=model, instance_type=instance_type, points=points, provenance=provenance)


def _mark_profiles(folder: Path) -> dict[str, list[Profile]]:
    """Published profiles of MArk's models: the artifact's capacities, Table 3 (t2) and Table 2 (Lambda)."""
    found: dict[str, list[Profile]] = {name: [] for name in MODEL_NAMES.values()}
    for row in _rows(folder / "mark_artifact_capacity.csv"):
        # The artifact counts batches a minute: more digits than its latency rounded to 0.1 ms.
        batch_ms = 60_000 / int(row["batches_per_minute"])
        _add(found, row, batch=int(row["batch_size"]), batch_ms=batch_ms, source="artifact, modules/constants.py")
    for row in _rows(folder / "mark_table3_t2_burst.csv"):
        _add(found, row, batch=1, batch_ms=float(row["avg_latency_ms"]), source="Table 3")
    for row in _rows(folder / "mark_table2_service_cost_latency.csv"):
        if row["service"].startswith("Lambda"):
            on_lambda = row | {"instance_type": LAMBDA, "machine": "Lambda 3 GB"}
            _add(found, on_lambda, batch=1, batch_ms=float(row["avg_latency_ms"]), source="Table 2")
    return found


def _add(
    found: dict[str, list[Profile]], row: Mapping[str, str], *, batch: int, batch_ms: float, source: str
) -> None:
    if row["model"] not in MODEL_NAMES:
        return
    name = MODEL_NAMES[row["model"]]
    provenance = Provenance(
        evidence=Evidence.PUBLISHED,
        source=f"{MARK_PAPER}, {source}",
        date=MARK_DATE,
        machine=row.get("machine", row["instance_type"]),
    )
    found[name].append(_profile(name, row["instance_type"], {batch: round(batch_ms, 3)}, provenance=provenance))


def _kairos_profiles(folder: Path) -> dict[str, list[Profile]]:
    """Profiles that Kairos' authors measured: mean of inference and load by items of a query, and their cv.

    The cv is the median over the batch sizes: in some cells one of the 99 repetitions takes several times as long.
    """
    curves: dict[tuple[str, str], dict[int, float]] = {}
    cvs: dict[tuple[str, str], list[float]] = {}
    for row in _rows(folder / "kairos_latency_profile.csv"):
        key, mean_ms = (row["model"], row["instance_type"]), float(row["total_mean_ms"])
        curves.setdefault(key, {})[int(row["batch_size"])] = mean_ms
        cvs.setdefault(key, []).append(float(row["total_std_ms"]) / mean_ms)
    found: dict[str, list[Profile]] = {name: [] for name in KAIROS_MODELS}
    for (name, instance_type), curve in curves.items():
        provenance = Provenance(
            evidence=Evidence.MEASURED,
            source="Kairos (HPDC 2023), boringlee24/hpdc23-kairos fa20590: mean of 99 repetitions, load included",
            date="2023",
            machine=instance_type,
        )
        profile = _profile(name, instance_type, curve, provenance=provenance)
        found[name].append(replace(profile, cv=round(median(cvs[name, instance_type]), 4)))
    return found


def _assumed_profiles(published: Mapping[str, list[Profile]]) -> dict[str, list[Profile]]:
    """Profiles that follow from a formula, one file for each assumption."""
    known_ms = {
        (p.model, p.instance_type): p.points[0].latency_s * 1000 for found in published.values() for p in found
    }
    return {
        "lambda": [
            *(_assumed_lambda(name, known_ms) for name in ("lstm-ptb", "nasnet")),
            *(load_profiles(name, (f"{ASSUMED_PREFIX}lambda",)).of(LAMBDA) for name in BENCHMARKED),
        ],
        "t3": [
            _assumed("inception-v3", t3, {1: known_ms["inception-v3", t2]}, f"t3 = t2 of equal vCPUs: {t2}")
            for t3, t2 in T3_LIKE_T2.items()
        ],
        "batch-curve": [
            _assumed_curve(p) for found in published.values() for p in found if p.instance_type == "p2.xlarge"
        ],
    }


def _assumed_lambda(name: str, known_ms: Mapping[tuple[str, str], float]) -> Profile:
    large_over_xlarge = known_ms["inception-v3", "c5.large"] / known_ms["inception-v3", "c5.xlarge"]
    single_ms = known_ms[name, "c5.xlarge"] * large_over_xlarge * LAMBDA_FACTOR
    formula = (
        f"c5.xlarge x {large_over_xlarge:.4f} (Inception-v3's c5.large / c5.xlarge) x {LAMBDA_FACTOR} (Table 2)"
    )
    return _assumed(name, LAMBDA, {1: single_ms}, formula)


def _assumed_curve(known: Profile) -> Profile:
    full = known.points[-1]
    curve = {
        b: full.latency_s * 1000 * (FIXED_SHARE + (1 - FIXED_SHARE) * b / full.batch)
        for b in P2_BATCHES
        if b <= full.batch
    }
    formula = f"T(b) = T({full.batch}) x ({FIXED_SHARE} + {1 - FIXED_SHARE} x b / {full.batch})"
    return _assumed(known.model, known.instance_type, curve, formula)


def _assumed(model: str, instance_type: str, latency_ms_by_batch: Mapping[int, float], formula: str) -> Profile:
    provenance = Provenance(
        evidence=Evidence.ASSUMED,
        source=f"computed from the published profiles of {MARK_PAPER}",
        date=MARK_DATE,
        machine=instance_type,
        formula=formula,
    )
    rounded = {batch: round(ms, 3) for batch, ms in latency_ms_by_batch.items()}
    return _profile(model, instance_type, rounded, provenance=provenance)


if __name__ == "__main__":
    raise SystemExit(main())
