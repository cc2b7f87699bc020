"""The emulated account as conditions ask for it: whose instances, functions and launch templates those are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moto.awslambda.exceptions import UnknownFunctionException

from mark.emulator.authorization.accesses import MailIdentity, Params, Tags, TemplateFound
from mark.emulator.ec2.launch_templates import find_template
from mark.emulator.errors import ApiError
from mark.emulator.moto_parts import backend_of


class EmulatedInventory:
    """Inventory of moto's account; `instance_tags` and `mail_identity`: as `Inventory` has them."""

    def __init__(
        self,
        instance_tags: Callable[[str], Tags | None],
        mail_identity: Callable[[str], MailIdentity | None] = lambda _: None,
    ) -> None:
        self.instance_tags = instance_tags
        self.mail_identity = mail_identity

    def function_tags(self, name: str) -> Tags | None:
        """See `Inventory`."""
        try:
            function = backend_of("lambda").get_function(name)
        except UnknownFunctionException:
            return None
        tags: Mapping[str, str] = function.tags
        return tags

    def template(self, reference: Params) -> TemplateFound | None:
        """See `Inventory`."""
        try:
            found = find_template(reference)
        except ApiError:
            return None
        name = found.reference["LaunchTemplateId"]
        tags = {tag["key"]: tag["value"] for tag in backend_of("ec2").get_launch_template(name).get_tags()}
        return TemplateFound(id=name, tags=tags, data=found.data)

    def function_of_mapping(self, mapping: str) -> str | None:
        """See `Inventory`."""
        found = backend_of("lambda").get_event_source_mapping(mapping)
        return str(found.function_arn) if found is not None else None
