"""One request of 32-bit floats: `python client.py http://127.0.0.1:8080 MODEL INPUT '[[1, 2, 3, 4]]'`."""

import json
import sys
from urllib.request import Request, urlopen

gateway, model, name, rows = *sys.argv[1:4], json.loads(sys.argv[4])
shape = [len(rows), len(rows[0])]
body = json.dumps({"inputs": [{"name": name, "datatype": "FP32", "shape": shape, "data": rows}]}).encode()
headers = {"x-mark-deadline-ms": "2000"}  # with a token: "authorization": "Bearer TOKEN"
with urlopen(Request(f"{gateway}/v2/models/{model}/infer", body, headers), timeout=10) as answer:
    print(answer.headers["x-mark-served-by"], json.load(answer)["outputs"])
