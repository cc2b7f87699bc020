"""An app of your own with MArk's stacks in it, and a stack of yours that uses what they publish."""

from pathlib import Path

from aws_cdk import App, Environment, Stack, aws_ssm

from mark.infra.blueprint import read_blueprint
from mark.infra.build import build

app = App(analytics_reporting=False, context={"aws:cdk:disable-asset-staging": True})
blueprint = read_blueprint(Path("stacks/blueprint.json").read_text(encoding="utf-8"))
stacks = build(app, blueprint)

region = Environment(account=blueprint.rollout.account, region=blueprint.region)
team = Stack(app, "team", stack_name=f"{blueprint.service}-team", env=region)
team.add_stack_dependency(stacks[-1])
bucket = stacks[0].imported("bucket")
aws_ssm.StringParameter(team, "Bucket", parameter_name=f"/{blueprint.service}/bucket", string_value=bucket)
app.synth()
