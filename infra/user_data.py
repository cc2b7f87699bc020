"""Start scripts of instances. What runs is a container, kept up by systemd; it powers the machine off with exit 0.

The store's URL holds a password, so it stands in no template: it is read from Secrets Manager before each start,
into a file in memory that only root reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SCRATCH = "/scratch"
"""Where a process may write: the rest of its container cannot be changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start of an instance. `secrets`: variable -> secret's name. `bundle`: an object (s3://) for /model.

    `log`: the log group of what it says; its streams bear the machines' names. `signals`: the stack, and the group
    of instances in it, that wait for the word that the process answers at `answers`.
    """

    process: str
    image: str
    region: str
    log: str
    secrets: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu: bool = False
    model_image: str = ""
    bundle: str = ""
    powers_off: bool = False
    signals: tuple[str, str] | None = None
    answers: str = ""


def start_script(start: Start) -> str:
    """The user data: a script that runs once, at the first boot; the units run at every boot."""
    variables = {**start.environment, "TMPDIR": SCRATCH, "MARK_CACHE": f"{SCRATCH}/mark"}
    parts = [
        _HEAD,
        _file("/etc/mark/environment", "".join(f"{name}={value}\n" for name, value in sorted(variables.items()))),
        _file("/usr/local/bin/mark-prepare", _prepare(start), mode="700"),
        *([_file("/etc/systemd/system/mark-model.service", _model_unit(start))] if start.model_image else []),
        _file("/etc/systemd/system/mark.service", _unit(start)),
        "systemctl daemon-reload\nsystemctl enable --now --no-block mark.service\n",
        *([_signal(start, *start.signals)] if start.signals else []),
    ]
    return "\n".join(parts)


_HEAD = """#!/bin/bash
set -euo pipefail
systemctl disable --now --no-block ecs.service || true  # the machine image's own container agent
install -d -m 700 /etc/mark
"""


def _file(path: str, text: str, mode: str = "600") -> str:
    return f"install -m {mode} /dev/null {path}\ncat > {path} <<'MARK'\n{text}MARK\n"


def _signal(start: Start, stack: str, group: str) -> str:
    """Say once that the process answers. Where no update waits CloudFormation refuses, which is no failure."""
    metadata = "http://169.254.169.254/latest"
    script = f"""#!/bin/bash
set -euo pipefail
until curl -fsS -m 2 -o /dev/null {start.answers}; do sleep 2; done
token="$(curl -fsS -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' {metadata}/api/token)"
machine="$(curl -fsS -H "X-aws-ec2-metadata-token: $token" {metadata}/meta-data/instance-id)"
aws cloudformation signal-resource --region {start.region} --stack-name {stack} --logical-resource-id {group} \\
  --unique-id "$machine" --status SUCCESS || true
"""
    path = "/usr/local/bin/mark-signal"
    # beside the first boot, which is not over while this script waits
    return f"{_file(path, script, mode='700')}systemd-run --no-block --unit=mark-signal {path}\n"


def _prepare(start: Start) -> str:
    registries = sorted({image.partition("/")[0] for image in (start.image, start.model_image) if image})
    lines = [
        "#!/bin/bash",
        "set -euo pipefail",
        "exec 2> >(tee /dev/console >&2)  # the system log, which EC2 shows of any machine",
        "command -v aws > /dev/null || dnf install -y -q awscli-2",
        "umask 077",
        "install -d -m 700 /run/mark",
        "told=/run/mark/environment.$$  # put in place at once: a model's unit prepares, too",
        ': > "$told"',
    ]
    for variable, secret in sorted(start.secrets.items()):
        read = f"aws secretsmanager get-secret-value --region {start.region} --secret-id {secret}"
        lines.append(f'value="$({read} --query SecretString --output text)"')
        lines.append(f'printf \'{variable}=%s\\n\' "$value" >> "$told"')
    lines.append('mv -f "$told" /run/mark/environment')
    for registry in registries:
        login = f"aws ecr get-login-password --region {registry.split('.')[3]}"
        lines.append(f"{login} | docker login --username AWS --password-stdin {registry}")
    lines += [f"docker pull -q {image}" for image in (start.image, start.model_image) if image]
    if start.bundle:
        lines.append("install -d -m 755 /opt/mark/model")
        lines.append(f"aws s3 cp --region {start.region} {start.bundle} - | tar -xz -C /opt/mark/model")
    return "\n".join(lines) + "\n"


def _unit(start: Start) -> str:
    gpus = "--gpus all " if start.gpu and not start.model_image else ""
    model = "-v /opt/mark/model:/model:ro -e PYTHONPATH=/model " if start.bundle else ""
    run = (
        f"docker run --rm --name mark {_logged(start)}--network host --read-only --tmpfs {SCRATCH}:mode=1777 "
        f"--env-file /etc/mark/environment --env-file /run/mark/environment {gpus}{model}{start.image} "
        f"python -m mark.live.processes.cloud {start.process}"
    )
    # wanted, not required: one that fails at first is started again, and what requires it would not be
    model_unit = " mark-model.service" if start.model_image else ""
    off = (
        "ExecStopPost=/bin/sh -c 'if [ \"$SERVICE_RESULT\" = success ]; then systemctl --no-block poweroff; fi'\n"
        if start.powers_off
        else ""
    )
    return f"""[Unit]
After=network-online.target docker.service{model_unit}
Requires=docker.service
Wants=network-online.target{model_unit}
StartLimitIntervalSec=0

[Service]
Environment=HOME=/root
ExecStartPre=-/usr/bin/docker rm -f mark
ExecStartPre=/usr/local/bin/mark-prepare
ExecStart=/usr/bin/{run}
{off}Restart=on-failure
RestartSec=2
TimeoutStartSec=900

[Install]
WantedBy=multi-user.target
"""


def _logged(start: Start, more: str = "") -> str:
    """Log options of the container: CloudWatch without waiting, and no file that grows on the disk."""
    options = {"region": start.region, "group": start.log, "stream": f"%H{more}"}
    variables = "".join(f"--log-opt awslogs-{name}={value} " for name, value in options.items())
    return f"--log-driver awslogs {variables}--log-opt mode=non-blocking "


def _model_unit(start: Start) -> str:
    gpus = "--gpus all " if start.gpu else ""
    model = "-v /opt/mark/model:/model:ro " if start.bundle else ""
    logged = _logged(start, "-model")
    run = f"docker run --rm --name mark-model {logged}--network host {gpus}{model}{start.model_image}"
    return f"""[Unit]
After=docker.service
Requires=docker.service
StartLimitIntervalSec=0

[Service]
Environment=HOME=/root
ExecStartPre=-/usr/bin/docker rm -f mark-model
ExecStartPre=/usr/local/bin/mark-prepare
ExecStart=/usr/bin/{run}
Restart=always
RestartSec=2
TimeoutStartSec=900
"""
