# One stack of the service; nothing where the service has no such part.

variable "part" {
  type = string
}

variable "stacks" {
  type = map(object({ name = string, template = string, tags = map(string) }))
}

variable "urls" {
  type = map(string)
}

resource "aws_cloudformation_stack" "this" {
  for_each     = { for part, stack in var.stacks : part => stack if part == var.part }
  name         = each.value.name
  template_url = var.urls[each.key]
  tags         = each.value.tags
  capabilities = ["CAPABILITY_NAMED_IAM"]

  timeouts {
    create = "90m"
    update = "90m"
    delete = "90m"
  }
}

output "told" {
  description = "What the stack hands to others: ToldBucket, ToldVpc, ToldAddress ..."
  value       = merge([for stack in aws_cloudformation_stack.this : stack.outputs]...)
}
