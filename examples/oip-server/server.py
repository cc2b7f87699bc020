"""A server of the Open Inference Protocol v2 in the standard library: the mean of each row. Triton stands here.

python server.py 8000
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "/v2/models/mean"
DOCUMENTS = {
    "/v2": {"name": "example", "version": "1", "extensions": []},
    "/v2/health/ready": {},
    f"{MODEL}/ready": {},
    MODEL: {
        "name": "mean",
        "inputs": [{"name": "row", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "mean", "datatype": "FP32", "shape": [-1, 1]}],
    },
}


class Handler(BaseHTTPRequestHandler):
    """Metadata by GET, inference by POST, over connections that stay open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answer with a document."""
        document = DOCUMENTS.get(self.path)
        self.send(404 if document is None else 200, document or {})

    def do_POST(self):
        """Answer with the mean of each row of four."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        data = asked["inputs"][0]["data"]
        flat = [x for row in data for x in row] if isinstance(data[0], list) else data
        means = [sum(flat[at : at + 4]) / 4 for at in range(0, len(flat), 4)]
        output = {"name": "mean", "datatype": "FP32", "shape": [len(means), 1], "data": means}
        self.send(200, {"model_name": "mean", "outputs": [output]})

    def send(self, status, document):
        """Send a JSON document."""
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Stay silent."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
