"""Writes `access.log.gz`, forty minutes as an Application Load Balancer logs them; leave it out if you have a log.

The load rises from 20 to 60 requests/s; every fifth second a health check comes.
"""

import gzip
import random
from datetime import UTC, datetime, timedelta

BEGIN = datetime(2024, 5, 1, 10, tzinfo=UTC)
MINUTES, LOW_RPS, HIGH_RPS = 40, 20.0, 60.0
GROUP = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/api/73e2d6bc24d8a067"
LINE = (
    "h2 {at} app/api/50dc6c495c0c9188 192.0.2.10:39943 10.0.0.66:8080 0.000 0.086 0.000 200 200 0 57 "
    '"{request} HTTP/2.0" "python/3" - - {group} "Root=1-58337281-1d84f3d73c47ec4e58577259" "-" "-" 0 {at} '
    '"forward" "-" "-" "10.0.0.66:8080" "200" "-" "-"\n'
)


def entry(at: datetime, request: str) -> str:
    """A line of the log."""
    return LINE.format(
        at=at.isoformat(timespec="microseconds").replace("+00:00", "Z"), request=request, group=GROUP
    )


draw = random.Random(1)
end = BEGIN + timedelta(minutes=MINUTES)
at, lines = BEGIN, []
while at < end:
    rate = LOW_RPS + (HIGH_RPS - LOW_RPS) * ((at - BEGIN) / (end - BEGIN))
    lines.append(entry(at, "POST https://api.example.com:443/v2/models/classifier/infer"))
    at += timedelta(seconds=draw.expovariate(rate))
lines += [
    entry(BEGIN + timedelta(seconds=second), "GET https://api.example.com:443/health")
    for second in range(0, MINUTES * 60, 5)
]
with gzip.open("access.log.gz", "wt") as log:
    log.writelines(sorted(lines, key=lambda line: line.split(" ", 2)[1]))
