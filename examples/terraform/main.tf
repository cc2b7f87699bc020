# The service's stacks, one after the other, as `mark deploy` makes them.

terraform {
  required_version = ">= 1.4"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "templates_bucket" {
  description = "A bucket of yours in the service's region; CloudFormation reads the templates there"
  type        = string
}

data "aws_s3_bucket" "templates" {
  bucket = var.templates_bucket
}

# By address and not as text: Terraform may hand over 51,200 bytes as text, and the largest templates have more.
# The name has the content's hash, so that a changed template is a changed stack.
resource "aws_s3_object" "template" {
  for_each = local.stacks
  bucket   = var.templates_bucket
  key      = "${each.value.name}/${filemd5(each.value.template)}.json"
  source   = each.value.template
}

locals {
  urls = {
    for part, object in aws_s3_object.template :
    part => "https://${data.aws_s3_bucket.templates.bucket_regional_domain_name}/${object.key}"
  }
}

module "archive" {
  source = "./stack"
  part   = "archive"
  stacks = local.stacks
  urls   = local.urls
}

module "network" {
  source     = "./stack"
  part       = "network"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [terraform_data.upload]
}

module "launch" {
  source     = "./stack"
  part       = "launch"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [module.network]
}

module "state" {
  source     = "./stack"
  part       = "state"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [module.launch]
}

module "events" {
  source     = "./stack"
  part       = "events"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [module.state]
}

module "functions" {
  source     = "./stack"
  part       = "functions"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [module.events]
}

module "nodes" {
  source     = "./stack"
  part       = "nodes"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [module.functions]
}

module "control" {
  source     = "./stack"
  part       = "control"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [module.nodes]
}

module "gateways" {
  source     = "./stack"
  part       = "gateways"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [module.control]
}

module "reports" {
  source     = "./stack"
  part       = "reports"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [module.gateways]
}

module "watch" {
  source     = "./stack"
  part       = "watch"
  stacks     = local.stacks
  urls       = local.urls
  depends_on = [module.reports]
}

output "told" {
  description = "What the stacks hand to others, by part"
  value = {
    archive  = module.archive.told
    network  = module.network.told
    gateways = module.gateways.told
  }
}
