"""Start scripts of instances. What runs is a container, kept up by systemd; it powers the machine off with exit 0.

Passwords stand in no template: they are read from Secrets Manager before each start, into files in memory that
only root reads. A process that starts again needs its machine alone: while AWS does not answer, a secret's last
value counts, and an image is pulled only where it is not there.

Model code runs as a user, or in a network, that does not reach the metadata service, and so has no role of AWS.
What its agent asks of that service another process tells (`mark.live.processes.metadata`).
"""

from __future__ import annotations

import ast
import base64
import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mark.aws.names import ON_INSTANCES
from mark.live.processes.metadata import HOST, PORT
from mark.serving.backends.isolation import MODEL_USER, USERS
from mark.store.users import NOBODY, StoreUser, user_line

SCRATCH = "/scratch"
_SCRATCH = f"--tmpfs {SCRATCH}:exec,mode=1777 --shm-size 1g "
"""Compilers of kernels load what they write (torch.compile, Triton), and workers of data loaders share memory: by
itself Docker lets nothing on a tmpfs be executed, and gives 64 MiB to share."""
"""Where a process may write: the rest of its container cannot be changed."""
TOOLS = "/usr/local/lib/mark"
"""On the machine: `aws`, with the calls of these scripts alone (`aws_call.py`): boots install only Docker."""
STARTED = "/run/mark-start"
"""On the machine: the script that its first boot ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start of an instance. `secrets`: variable -> secret's name. `bundle`: an object (s3://) for /model.

    `versions`: the folder (s3://) with bundles of versions, for /versions.
    `forms`: what a variable is where it is more than its secret, which stands at %s. `log`: the log group of what
    it says; its streams bear the machines' names. `signals`: the stack, and the group of instances in it, that
    wait for the word that the process answers at `answers`. `runs_models`: it runs model code, which may not act
    as the instance. `lease`: the store's URL without a password, where it follows a lease. `model_ports`: those of
    the model's own server on loopback. `ipv6`: the instance has no public IPv4 address.
    """

    process: str
    image: str
    region: str
    log: str
    secrets: Mapping[str, str]
    forms: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    runs_models: bool = False
    lease: str = ""
    model_ports: tuple[int, ...] = ()
    gpu: bool = False
    model_image: str = ""
    bundle: str = ""
    versions: str = ""
    powers_off: bool = False
    signals: tuple[str, str] | None = None
    answers: str = ""
    ipv6: bool = False


_FILLED = re.compile(r"\$\{Token\[[^]]+\]\}")
"""What CDK writes where CloudFormation fills something in."""


def packed(script: str) -> str:
    """User data that unpacks a script and runs it: EC2 takes 16 KiB, and a node's script is longer.

    What CloudFormation fills in stays outside, and the machine puts it in its places.
    """
    places: dict[str, str] = {}
    fixed = _FILLED.sub(lambda found: places.setdefault(found[0], f"@@{len(places)}@@"), script)
    blob = base64.b64encode(gzip.compress(fixed.encode(), mtime=0)).decode()
    puts = "".join(f" -e 's|{place}|{value}|g'" for value, place in places.items())
    runs = f"base64 -d <<< {blob} | gunzip | sed{puts or ' -n p'} > {STARTED}\nbash {STARTED}\n"
    return f"#!/bin/bash\nset -euo pipefail\n{runs}"


def start_script(start: Start) -> str:
    """A script that runs once, at the first boot; the units run at every boot."""
    variables = {**start.environment, "HOME": SCRATCH, "TMPDIR": SCRATCH, "MARK_CACHE": f"{SCRATCH}/mark"}
    if start.runs_models:
        variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = METADATA
        variables[MODEL_USER] = USER
    if start.lease:
        variables["MARK_LEADER"] = "metadata"
    if start.ipv6:
        start = _dual_stack(start)
    parts = [
        _HEAD,
        _file("/etc/mark/environment", _variables(variables)),
        _file("/usr/local/bin/mark-prepare", _prepare_one(start), mode="700"),
        *([_file("/etc/systemd/system/mark-model.service", _model_unit(start))] if start.model_image else []),
        *(
            [_file("/etc/systemd/system/mark-metadata.service", _metadata_unit(start))]
            if start.runs_models
            else []
        ),
        _file("/etc/systemd/system/mark.service", _unit(start)),
        "systemctl daemon-reload\nsystemctl enable --now --no-block mark.service\n",
        *([_signal(start.region, start.answers, *start.signals)] if start.signals else []),
    ]
    return "\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStart:
    """Start of a node: store, controller and gateway beside each other, each a container of its own.

    `image`: the gateway's and the controller's. `secrets`, `forms`: as in Start, of the controller.
    `agents_secret`: the agents' password at the store. `logs`: the log group by process. `certificate`: ARN of the
    secret with the clients' certificate, which the store uses too; empty: nodes make one for `name`. `signals`: as
    in Start.
    """

    image: str
    store_image: str
    region: str
    logs: Mapping[str, str]
    service: str
    secrets: Mapping[str, str]
    forms: Mapping[str, str]
    agents_secret: str
    certificate: str
    name: str
    environment: Mapping[str, str]
    store_port: int
    signals: tuple[str, str]
    answers: str


TLS_FILES = "/run/mark/tls"
"""In memory, on the host and in the containers."""
USER = "10001"
"""Of the image's processes (infra/image/Dockerfile): it reads the key."""
MODELS = f"{USERS[0]}-{USERS[-1]}"
"""Users of models that share an instance."""
VERSIONS = "/opt/mark/versions"
"""On the host: the files of the versions that the instance serves."""
METADATA = f"http://{HOST}:{PORT}"
"""Address at which agents read what they may of the instance's metadata."""
NODE_PROCESSES = ("store", "controller", "gateway")
MODULES = {
    "agent": "mark.live.processes.agent",
    "controller": "mark.live.processes.cloud_controller",
    "gateway": "mark.live.processes.cloud_gateway",
}


def node_script(node: NodeStart) -> str:
    """The script of a node's first boot."""
    variables = {
        **node.environment,
        "MARK_TLS_CERTIFICATE": f"{TLS_FILES}/certificate.pem",
        "MARK_TLS_KEY": f"{TLS_FILES}/key.pem",
        "TMPDIR": SCRATCH,
        "MARK_CACHE": f"{SCRATCH}/mark",
    }
    units = [_file(f"/etc/systemd/system/mark-{name}.service", _node_unit(node, name)) for name in NODE_PROCESSES]
    units += [_RENEWAL] if node.certificate else []
    names = " ".join(f"mark-{name}.service" for name in NODE_PROCESSES)
    in_sync = (
        "docker exec mark-store sh -c 'REDISCLI_AUTH=$(sed -n s/^masterauth.//p /run/mark/store.conf) "
        f"redis-cli --user {StoreUser.NODE.value} --tls --insecure -p {node.store_port} ROLE' "
        "| grep -q -e ^master -e ^connected"
    )
    return "\n".join(
        [
            _HEAD,
            f"install -d -m 700 -o {USER} /var/lib/mark/store",
            _SWAP,
            "sysctl -q -w net.ipv4.ip_unprivileged_port_start=443",
            "echo net.ipv4.ip_unprivileged_port_start=443 > /etc/sysctl.d/90-mark.conf\n",
            _file("/etc/mark/environment", _variables(variables)),
            _file("/usr/local/bin/mark-prepare", _prepare_node(node), mode="700"),
            *units,
            f"systemctl daemon-reload\nsystemctl enable --now --no-block {names}\n",
            *(["systemctl enable --now --no-block mark-renew.timer\n"] if node.certificate else []),
            _signal(node.region, node.answers, *node.signals, ready=in_sync),
        ]
    )


_SWAP = """\
# what nobody reads leaves the memory, so that a small node has room while forecasters learn
if (umask 077 && dd if=/dev/zero of=/swap bs=1M count=1024 status=none && mkswap -q /swap && swapon /swap); then
  echo '/swap none swap defaults 0 0' >> /etc/fstab
fi
sysctl -q -w vm.swappiness=10"""
_OWN = r"s|^MARK_STORE_URL=[a-z+]*://controller:\([^@]*\)@.*|\1|p"
"""The controller's password, for sed."""


def _prepare_node(node: NodeStart) -> str:
    """Secrets and images; the store's configuration and users; for each process its own environment.

    The gateway's password is made of the controller's, and so no secret of its own: the other way leads nowhere.
    """
    hashes = dict.fromkeys((StoreUser.CONTROLLER, StoreUser.NODE, StoreUser.REPLICA), "$own_hash") | {
        StoreUser.AGENT: "$agents_hash",
        StoreUser.GATEWAY: "$gateways_hash",
    }
    users = "".join(f"{user_line(user, node.service, hashes[user])}\n" for user in sorted(hashes))
    conf = (
        f"port 0\ntls-port {node.store_port}\ntls-cert-file {TLS_FILES}/certificate.pem\n"
        f"tls-key-file {TLS_FILES}/key.pem\ntls-ca-cert-file {TLS_FILES}/authorities.pem\ntls-auth-clients no\n"
        "tls-replication yes\nappendonly yes\nmaxmemory-policy noeviction\ndir /data\n"
        # a quarter of the machine's: what is beyond is refused, before the kernel ends a process to make room
        "maxmemory $(($(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE) / 4))\n"
        # it serves nobody before the node's controller says whether it leads, and whom it follows
        "replicaof 127.0.0.1 1\nreplica-serve-stale-data no\n"
    )
    return _prepare(node.region, node.secrets, node.forms, images=(node.image, node.store_image)) + "\n".join(
        [
            # a process that starts again takes what the others have; `mark-renew` alone brings the next one
            f'if [ "${{1:-}}" = renew ] || ! [ -e {TLS_FILES}/key.pem ]; then',
            f"install -d -m 700 -o {USER} {TLS_FILES} {TLS_FILES}.new",
            f"cd {TLS_FILES}.new",
            *(_read_certificate(node) if node.certificate else _make_certificate(node.name)),
            # replicas check the other node's certificate: a private authority's root is the end of its chain
            "cat certificate.pem /etc/pki/tls/certs/ca-bundle.crt > authorities.pem",
            "cd /",
            f"chown -R {USER} {TLS_FILES}.new",
            # into the folder that is there: containers that run have it
            f"mv -f {TLS_FILES}.new/*.pem {TLS_FILES}",
            "fi",
            'hashed() { printf %s "$1" | sha256sum | cut -c-64; }',
            f"own=\"$(sed -n '{_OWN}' /run/mark/environment)\"",
            f'agents="$(secret {node.agents_secret})"',
            'agents_hash="$(hashed "$agents")"',
            'gateways="$(hashed "gateway:$own")"',
            'own_hash="$(hashed "$own")" gateways_hash="$(hashed "$gateways")"',
            "grep -vE '^MARK_(TOKEN|OTLP_HEADERS)=' /run/mark/environment > /run/mark/controller.$$",
            'sed "s|//controller:$own@|//gateway:$gateways@|" /run/mark/environment > /run/mark/gateway.$$',
            'for process in controller gateway; do mv -f "/run/mark/$process.$$" "/run/mark/$process"; done',
            "cat > /run/mark/store.conf.$$ <<CONF",
            f"{conf}user default {NOBODY}\n{users}masteruser {StoreUser.REPLICA.value}",
            "masterauth $own",
            "CONF",
            f"chown {USER} /run/mark/store.conf.$$ && mv -f /run/mark/store.conf.$$ /run/mark/store.conf",
            "",
        ]
    )


def _read_certificate(node: NodeStart) -> list[str]:
    """Write certificate.pem and key.pem as the secret has them."""
    return [
        "jq() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1][1:]])' \"$2\"; }",
        f'certificate="$(secret {node.certificate})"',
        'for part in certificate key; do jq -er .$part <<< "$certificate" > $part.pem; done',
        # one that does not fit its key takes the place of none
        """python3 -c 'import ssl; ssl.create_default_context().load_cert_chain("certificate.pem", "key.pem")'""",
    ]


def _make_certificate(name: str) -> list[str]:
    """Make certificate.pem and key.pem. The authority's key follows from the store's URL with its password.

    So nodes have the same authority, and the stores trust each other, also while one replaces the other.
    """
    ed25519 = "302e020100300506032b657004220420"  # PKCS #8 (RFC 8410, section 7); 32 bytes of key follow
    request = "[req]\\nprompt=no\\ndistinguished_name=name\\n"
    authority = (
        f"{request}x509_extensions=authority\\n[name]\\nCN=MArk\\n"
        "[authority]\\nbasicConstraints=critical,CA:TRUE\\nsubjectKeyIdentifier=hash\\n"
    )
    return [
        "command -v openssl > /dev/null || dnf install -y -q openssl",
        f"key={ed25519}$(grep ^MARK_STORE_URL= /run/mark/environment | sha256sum | cut -c 1-64)",
        "printf \"$(sed 's/../\\\\x&/g' <<< $key)\" | openssl pkey -inform DER -out authority.key",
        f"openssl req -x509 -key authority.key -days 3650 -out authority.pem -config <(printf '{authority}')",
        "openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out key.pem",
        f"openssl req -new -key key.pem -config <(printf '{request}[name]\\nCN={name[:64]}\\n') \\",
        "  | openssl x509 -req -CA authority.pem -CAkey authority.key -set_serial 0x$(openssl rand -hex 8) \\",
        f"    -days 825 -out node.pem -extfile <(printf 'subjectAltName=DNS:{name}\\n')",
        "cat node.pem authority.pem > certificate.pem",
        "rm authority.key authority.pem node.pem",
    ]


def _node_unit(node: NodeStart, process: str) -> str:
    """A process of the node; what waits for the store's leader is started again until there is one."""
    name, stops_s = f"mark-{process}", 60
    logged = _logged(node.region, node.logs[process], "-store" if process == "store" else "")
    common = f"docker run --rm --name {name} --stop-timeout {stops_s} {logged}--network host --read-only "
    tls = f"-v {TLS_FILES}:{TLS_FILES}:ro "
    if process == "store":
        kept = "-v /var/lib/mark/store:/data -v /run/mark/store.conf:/run/mark/store.conf:ro "
        run = f"{common}--user {USER} {kept}{tls}{node.store_image} redis-server /run/mark/store.conf"
    else:
        run = (
            f"{common}--tmpfs {SCRATCH}:mode=1777 --env-file /etc/mark/environment "
            f"--env-file /run/mark/{process} {tls}{node.image} python -m {MODULES[process]}"
        )
    return _service(name, run, installed=True)


def _dual_stack(start: Start) -> Start:
    """The start with images of ECR at its endpoint for IPv6 (ECR user guide, "Making requests to ECR registries").

    Secrets Manager's usual endpoint answers by IPv6 (its user guide, "Control API access with IAM policies"); S3,
    with Amazon Linux's packages in it, and DynamoDB are reached through endpoints of the network.
    """
    return replace(start, image=_by_ipv6(start.image), model_image=_by_ipv6(start.model_image))


def _by_ipv6(image: str) -> str:
    return re.sub(r"^(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com/", r"\1.dkr-ecr.\2.on.aws/", image)


def _variables(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in sorted(variables.items()))


def _file(path: str, text: str, mode: str = "600") -> str:
    return f"install -m {mode} /dev/null {path}\ncat > {path} <<'MARK'\n{text}MARK\n"


_RENEWS = f"""\
#!/bin/bash
set -euo pipefail
before="$(sha256sum < {TLS_FILES}/certificate.pem)"
/usr/local/bin/mark-prepare renew
[ "$before" = "$(sha256sum < {TLS_FILES}/certificate.pem)" ] ||
  systemctl --no-block restart mark-store.service mark-gateway.service
"""
"""Takes the secret's next certificate; store and gateway read theirs when they start."""
_RENEWAL = "\n".join(
    (
        _file("/usr/local/bin/mark-renew", _RENEWS, mode="700"),
        _file(
            "/etc/systemd/system/mark-renew.service",
            "[Service]\nType=oneshot\nExecStart=/usr/bin/flock /run/mark-prepare.lock /usr/local/bin/mark-renew\n",
        ),
        _file(
            "/etc/systemd/system/mark-renew.timer",
            "[Timer]\nOnCalendar=daily\nRandomizedDelaySec=12h\n\n[Install]\nWantedBy=timers.target\n",
        ),
    )
)
"""At some hour of each day, so that two nodes rarely start again together."""


def _terse(source: Path) -> str:
    """A program without its comments, docstrings and annotations."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return f"{ast.unparse(tree)}\n"


_AWS_CALL = f"#!/usr/bin/python3\n{_terse(Path(__file__).with_name('aws_call.py'))}"
_HEAD = f"""#!/bin/bash
set -euo pipefail
# from Amazon Linux's repository, which is in S3
until command -v docker > /dev/null || dnf install -y -q docker; do sleep 5; done
systemctl enable --now --no-block docker.service
systemctl disable --now --no-block ecs.service || true  # the machine image's own container agent
install -d -m 700 /etc/mark {TOOLS}
{_file(f"{TOOLS}/aws", _AWS_CALL, mode="700")}"""


def _signal(region: str, answers: str, stack: str, group: str, *, ready: str = "") -> str:
    """Say once that the process answers. Where no update waits CloudFormation refuses, which is no failure.

    ready: another command that has to succeed before.
    """
    # the name of its certificate is not localhost
    insecure = "-k " if answers.startswith("https") else ""
    waits = f"until {ready}; do sleep 2; done\n" if ready else ""
    metadata = "http://169.254.169.254/latest"
    script = f"""#!/bin/bash
set -euo pipefail
PATH={TOOLS}:$PATH
until curl -fsS {insecure}-m 2 -o /dev/null {answers}; do sleep 2; done
{waits}token="$(curl -fsS -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' {metadata}/api/token)"
machine="$(curl -fsS -H "X-aws-ec2-metadata-token: $token" {metadata}/meta-data/instance-id)"
aws cloudformation signal-resource --region {region} --stack-name {stack} --logical-resource-id {group} \\
  --unique-id "$machine" --status SUCCESS || true
"""
    path = "/usr/local/bin/mark-signal"
    # beside the first boot, which is not over while this script waits
    return f"{_file(path, script, mode='700')}systemd-run --no-block --unit=mark-signal {path}\n"


def _prepare_one(start: Start) -> str:
    images = tuple(image for image in (start.image, start.model_image) if image)
    script = _prepare(start.region, start.secrets, start.forms, images=images)
    if start.runs_models:
        script += _firewall(start)
    if start.versions:
        script += f"install -d -m 755 {VERSIONS}\n"
    if not start.bundle:
        return script
    # whoever packed it has other users, and maybe files that only the owner reads
    unpacks = (
        f"aws s3 cp --region {start.region} {start.bundle} - | tar -xz --no-same-owner -C /opt/mark/model "
        "&& chmod -R a+rX /opt/mark/model"
    )
    # once a boot: each unit prepares, and a model that runs reads these files
    return (
        f"{script}install -d -m 755 /opt/mark/model\n"
        f"[ -e /run/mark/unpacked ] || {{ {unpacks} && touch /run/mark/unpacked; }}\n"
    )


def _firewall(start: Start) -> str:
    """Neither agent nor models nor a container with a network of its own reach the metadata service.

    Models that share an instance do not reach what answers the agent in its place either: it tells what agents log
    in with at the store. The agent does not start where that cannot be had. By IPv6 the service answers only where
    it is asked to.
    """
    owners = [f"--uid-owner {USER}", f"--gid-owner {USER}", f"--uid-owner {MODELS}"]
    rules = [f"iptables OUTPUT -d 169.254.169.254 -m owner {owner} -j REJECT" for owner in owners]
    rules.append(f"iptables OUTPUT -d {HOST} -p tcp --dport {PORT} -m owner --uid-owner {MODELS} -j REJECT")
    rules += ["iptables DOCKER-USER -d 169.254.169.254 -j REJECT"] if start.model_image else []
    rules += [f"ip6tables OUTPUT -d fd00:ec2::254 -m owner {owner} -j REJECT" for owner in owners]
    listed = "\n".join(rules)
    return f"""\
while read -r tables rule; do
  "$tables" -w -C $rule 2> /dev/null || "$tables" -w -I $rule || test "$tables" = ip6tables
done <<'RULES'
{listed}
RULES
"""


def _prepare(region: str, secrets: Mapping[str, str], forms: Mapping[str, str], *, images: tuple[str, ...]) -> str:
    lines = [
        "#!/bin/bash",
        "set -euo pipefail",
        "exec 2> >(tee /dev/console >&2)  # the system log, which EC2 shows of any machine",
        f"PATH={TOOLS}:$PATH",
        "umask 077",
        "trap '[ $? = 0 ] || sleep 10' EXIT  # systemd tries again at once, and AWS counts the calls",
        "install -d -m 700 /run/mark",
        _READS.replace("REGION", region),
        "told=/run/mark/environment.$$  # put in place at once: a model's unit prepares, too",
        ': > "$told"',
    ]
    for variable, secret in sorted(secrets.items()):
        lines.append(f'value="$(secret {secret})"')
        lines.append(f'printf \'{variable}={forms.get(variable, "%s")}\\n\' "$value" >> "$told"')
    lines.append('mv -f "$told" /run/mark/environment')
    lines += [
        f"docker image inspect {one} &> /dev/null || {{ {_login(one)}docker pull -q {one}; }}" for one in images
    ]
    return "\n".join(lines) + "\n"


_READS = r"""secret() {
  local kept="/run/mark/secret.${1//[\/:]/_}"
  if [ -z "$(find "$kept" -mmin -1 2> /dev/null)" ]; then
    aws secretsmanager get-secret-value --region REGION --secret-id "$1" --query SecretString --output text \
      > "$kept.$$" && mv -f "$kept.$$" "$kept" || { rm "$kept.$$"; touch -c "$kept"; }
  fi
  cat "$kept"
}"""
"""Prints a secret by its name. It is read once a minute at most, however often a process starts."""


def _login(image: str) -> str:
    """Log in at the registry of an image where that is ECR."""
    registry = image.partition("/")[0]
    if not re.search(r"\.dkr[.-]ecr\.", registry):
        return ""
    by_ipv6 = ".dkr-ecr." in registry
    login = f"aws ecr get-login-password --region {registry.split('.')[2 if by_ipv6 else 3]}"
    login += " --ipv6 yes" if by_ipv6 else ""
    return f"{login} | docker login --username AWS --password-stdin {registry}; "


def _unit(start: Start) -> str:
    gpus = "--gpus all " if start.gpu and not start.model_image else ""
    model = "-v /opt/mark/model:/model:ro -e PYTHONPATH=/model " if start.bundle else ""
    model += f"-v {VERSIONS}:{ON_INSTANCES} " if start.versions else ""  # root's, and so nobody else's to write
    logged = _logged(start.region, start.log, ipv6=start.ipv6)
    run = (
        f"docker run --rm --name mark {logged}--network host --read-only "
        f"{_AGENTS_RIGHTS if start.runs_models else ''}"
        f"{_SCRATCH}--env-file /etc/mark/environment --env-file /run/mark/environment "
        f"{gpus}{model}{start.image} "
        f"python -m {MODULES[start.process]}"
    )
    # wanted, not required: one that fails at first is started again, and what requires it would not be
    beside = " mark-metadata.service" if start.runs_models else ""
    beside += " mark-model.service" if start.model_image else ""
    off = (
        "ExecStopPost=/bin/sh -c 'if [ \"$SERVICE_RESULT\" = success ]; then systemctl --no-block poweroff; fi'\n"
        if start.powers_off
        else ""
    )
    return _service("mark", run, beside=beside, restart="on-failure", after_stop=off, installed=True)


def _service(
    name: str,
    run: str,
    *,
    online: bool = True,
    beside: str = "",
    restart: str = "always",
    after_stop: str = "",
    installed: bool = False,
) -> str:
    """The systemd unit of a container; one that is not installed starts with the unit that wants it.

    online: it waits for the network. beside: units that start before it, each after a space. after_stop: a line.
    """
    network, wants = ("network-online.target ", f"Wants=network-online.target{beside}\n") if online else ("", "")
    install = "\n[Install]\nWantedBy=multi-user.target\n" if installed else ""
    return f"""[Unit]
After={network}docker.service{beside}
Requires=docker.service
{wants}StartLimitIntervalSec=0

[Service]
Environment=HOME=/root
ExecStartPre=-/usr/bin/docker rm -f {name}
ExecStartPre=/usr/bin/flock /run/mark-prepare.lock /usr/local/bin/mark-prepare
ExecStart=/usr/bin/{run}
{after_stop}Restart={restart}
RestartSec=2
TimeoutStartSec=900
{install}"""


def _logged(region: str, group: str, more: str = "", *, ipv6: bool = False) -> str:
    """Log options of the container: CloudWatch without waiting, and no file that grows on the disk."""
    options = {"region": region, "group": group, "stream": f"%H{more}"}
    options |= {"endpoint": f"https://logs.{region}.api.aws"} if ipv6 else {}
    variables = "".join(f"--log-opt awslogs-{name}={value} " for name, value in options.items())
    return f"--log-driver awslogs {variables}--log-opt mode=non-blocking "


_NO_RIGHTS = "--cap-drop ALL --security-opt no-new-privileges "


_CAPABILITIES = ("SETUID", "SETGID", "KILL", "CHOWN")
"""With these root in its container gives each model of a shared instance a user, its files and an end."""
_AGENTS_RIGHTS = f"--user 0:{USER} {_NO_RIGHTS}{''.join(f'--cap-add {one} ' for one in _CAPABILITIES)}"
"""Its group is what the firewall knows it by. An agent of one model becomes USER before it loads it."""


def _metadata_unit(start: Start) -> str:
    """It reads the metadata as root, whom the firewall lets through, fetches versions, and can do nothing else."""
    service = start.environment.get("MARK_SERVICE", "")
    lease = f"-e MARK_STORE_URL={start.lease} -e MARK_SERVICE={service} " if start.lease else ""
    lease += (
        f"-e MARK_VERSIONS={start.versions} -e MARK_REGION={start.region} -v {VERSIONS}:{ON_INSTANCES} "
        if start.versions
        else ""
    )
    logged = _logged(start.region, start.log, "-metadata", ipv6=start.ipv6)
    run = (
        f"docker run --rm --name mark-metadata {logged}--network host --read-only --user 0 {_NO_RIGHTS}{lease}"
        f"{start.image} python -m mark.live.processes.metadata"
    )
    return _service("mark-metadata", run)


def _model_unit(start: Start) -> str:
    gpus = "--gpus all " if start.gpu else ""
    model = "-v /opt/mark/model:/model:ro " if start.bundle else ""
    logged = _logged(start.region, start.log, "-model", ipv6=start.ipv6)
    ports = "".join(f"-p 127.0.0.1:{port}:{port} " for port in start.model_ports)
    run = f"docker run --rm --name mark-model {logged}{ports}{gpus}{model}{start.model_image}"
    return _service("mark-model", run, online=False)
