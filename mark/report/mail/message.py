"""The cost report as a mail: HTML with its plots inside, a text part with the same figures, and MIME of both."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP

from mark.domain.errors import Misconfigured
from mark.report.cost.cost_report import CostReport
from mark.report.formatting import unbroken
from mark.report.html import make_environment
from mark.report.mail.text import mail_text
from mark.report.mail.view import mail_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A mail that is not addressed yet. images: (content id, PNG); the HTML names each as `cid:CONTENT-ID`."""

    subject: str
    html: str
    text: str
    images: tuple[tuple[str, bytes], ...]


def render(report: CostReport) -> Mail:
    """The report as a mail. Plots take matplotlib, which is imported here and not before."""
    from mark.report.mail.plots import mail_plots  # noqa: PLC0415

    view = mail_view(report)
    images = mail_plots(report)
    environment = make_environment(whole=unbroken)
    html = environment.get_template("mail.html.j2").render(view=view, drawn=frozenset(name for name, _ in images))
    return Mail(subject=view.subject, html=html, text=mail_text(view), images=images)


def standalone(mail: Mail) -> str:
    """The HTML with its images inside as data, for a file that needs nothing else."""
    html = mail.html
    for name, png in mail.images:
        html = html.replace(f'"cid:{name}"', f'"data:image/png;base64,{base64.b64encode(png).decode()}"')
    return html


def mime(mail: Mail, sender: str, recipients: Sequence[str]) -> bytes:
    """The mail as it is sent: text and HTML as alternatives, the HTML related to its images.

    Misconfigured where an address cannot stand in a header, or nobody is to get it.
    """
    if not recipients:
        raise Misconfigured("a mail needs somebody to go to; name an address")
    message = EmailMessage(policy=SMTP)
    message["Subject"] = mail.subject
    message["From"] = _address(sender)
    message["To"] = ", ".join(map(_address, recipients))
    message.set_content(mail.text)
    message.add_alternative(mail.html, subtype="html")
    related = message.get_payload()[1]  # type: ignore[index]
    assert isinstance(related, EmailMessage)
    for name, png in mail.images:
        related.add_related(
            png, maintype="image", subtype="png", cid=f"<{name}>", disposition="inline", filename=f"{name}.png"
        )
    return message.as_bytes()


def _address(text: str) -> str:
    """One that can stand in a header."""
    name, at, domain = text.strip().rpartition("@")
    if not (name and at and domain) or any(mark.isspace() or mark in ",;<>" for mark in name + domain):
        raise Misconfigured(f"{text!r} is not a mail address; write one such as team@example.org")
    return text.strip()
