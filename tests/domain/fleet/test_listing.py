"""Which members gateways take."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.fleet.host_spec import SHARED, HostSpec, TenantSpec
from mark.domain.fleet.listing import ListedInstance, Listing
from mark.domain.fleet.member import Member
from tests.store.builders import MEMBER

NAMES = st.sampled_from(["a", "b"])
LISTED = st.builds(ListedInstance, host=NAMES, version=st.sampled_from(["", "v", "w"]))
TENANT = TenantSpec(model="a", offering="c5.large", max_batch=1, share_rps=1.0)
SPECS = st.sampled_from([HostSpec(), HostSpec(tenants=(TENANT,))])
LISTINGS = st.builds(
    Listing,
    models=st.dictionaries(st.sampled_from(["a", "b", SHARED]), st.dictionaries(NAMES, LISTED)),
    held=st.dictionaries(NAMES, SPECS),
)
MEMBERS = st.builds(
    lambda instance, model, host, version, share: replace(
        MEMBER, instance=instance, model=model, host=host, version=version, share_rps=share
    ),
    NAMES,
    NAMES,
    NAMES,
    st.sampled_from(["v", "w"]),
    st.sampled_from([None, 1.0]),
)


@given(LISTINGS, MEMBERS)
def test_a_member_is_taken_at_the_address_of_an_instance_that_is_its_models(
    listing: Listing, member: Member
) -> None:
    of = SHARED if member.is_tenant else member.model
    if of not in listing.models:
        assert listing.has(member)
    elif listing.has(member):
        found = listing.models[of][member.instance]
        assert found.host == member.host
        assert member.is_tenant or found.version in {"", member.version}
        assert not member.is_tenant or listing.held[member.instance].tenants[0].model == member.model


@given(LISTINGS, LISTINGS)
def test_what_is_said_anew_holds_and_a_store_that_says_nothing_changes_nothing(old: Listing, new: Listing) -> None:
    now = Listing().updated(old)
    after = now.updated(new)
    assert now.updated(Listing()) == now
    assert {name: after.models[name] for name in new.models} == new.models
    assert after.held.keys() <= after.models.get(SHARED, {}).keys(), "what is gone is forgotten"
