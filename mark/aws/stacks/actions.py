"""Actions that CloudFormation takes in the deployer's name, by type of resource of the stacks.

From the permissions that AWS's resource types state of their own handlers (CloudFormation registry schemas, May
2025), without those of properties that no stack of ours sets. ReplicationGroup states none: its actions are those
of ElastiCache's API. **No real account has judged this table.** A test holds it to the synthesised templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

STACK_ACTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "AWS::AutoScaling::AutoScalingGroup": (
            (
                "autoscaling: AttachLoadBalancerTargetGroups CreateAutoScalingGroup CreateOrUpdateTags "
                "DeleteAutoScalingGroup DeleteTags DescribeAutoScalingGroups DescribeScalingActivities "
                "DescribeTags DetachLoadBalancerTargetGroups DetachLoadBalancers ResumeProcesses SuspendProcesses "
                "TerminateInstanceInAutoScalingGroup UpdateAutoScalingGroup"
            ),
            (
                "ec2: DescribeAvailabilityZones DescribeImages DescribeInstances "
                "DescribeLaunchTemplateVersions DescribeLaunchTemplates DescribeSubnets RunInstances"
            ),
            "elasticloadbalancing: DescribeTargetGroups DescribeTargetHealth",
            "iam: CreateServiceLinkedRole PassRole",
        ),
        "AWS::AutoScaling::ScheduledAction": (
            "autoscaling: DeleteScheduledAction DescribeScheduledActions PutScheduledUpdateGroupAction",
        ),
        "AWS::Budgets::Budget": (
            "budgets: ListTagsForResource ModifyBudget TagResource UntagResource ViewBudget",
        ),
        "AWS::CloudWatch::Alarm": (
            "cloudwatch: DeleteAlarms DescribeAlarms ListTagsForResource PutMetricAlarm TagResource UntagResource",
        ),
        "AWS::CloudWatch::Dashboard": ("cloudwatch: DeleteDashboards GetDashboard PutDashboard TagResource",),
        "AWS::DynamoDB::Table": (
            (
                "dynamodb: CreateTable DeleteTable DescribeContinuousBackups DescribeContributorInsights "
                "DescribeKinesisStreamingDestination DescribeTable DescribeTimeToLive GetResourcePolicy "
                "ListTagsOfResource TagResource UntagResource UpdateTable UpdateTimeToLive"
            ),
        ),
        "AWS::EC2::EgressOnlyInternetGateway": (
            (
                "ec2: CreateEgressOnlyInternetGateway CreateTags DeleteEgressOnlyInternetGateway DeleteTags "
                "DescribeEgressOnlyInternetGateways DescribeVpcs"
            ),
        ),
        "AWS::EC2::InternetGateway": (
            "ec2: CreateInternetGateway CreateTags DeleteInternetGateway DeleteTags DescribeInternetGateways",
        ),
        "AWS::EC2::LaunchTemplate": (
            (
                "ec2: CreateLaunchTemplate CreateLaunchTemplateVersion CreateTags DeleteLaunchTemplate "
                "DeleteTags DescribeLaunchTemplateVersions DescribeLaunchTemplates ModifyLaunchTemplate"
            ),
        ),
        "AWS::EC2::Route": (
            "ec2: CreateRoute DeleteRoute DescribeNetworkInterfaces DescribeRouteTables ReplaceRoute",
        ),
        "AWS::EC2::RouteTable": (
            "ec2: CreateRouteTable CreateTags DeleteRouteTable DeleteTags DescribeRouteTables",
        ),
        "AWS::EC2::SecurityGroup": (
            (
                "ec2: AuthorizeSecurityGroupEgress AuthorizeSecurityGroupIngress CreateSecurityGroup "
                "CreateTags DeleteSecurityGroup DeleteTags DescribeInstances DescribeSecurityGroups "
                "RevokeSecurityGroupEgress RevokeSecurityGroupIngress"
            ),
        ),
        "AWS::EC2::SecurityGroupIngress": (
            "ec2: AuthorizeSecurityGroupIngress DescribeSecurityGroupRules RevokeSecurityGroupIngress",
        ),
        "AWS::EC2::Subnet": (
            "ec2: CreateSubnet CreateTags DeleteSubnet DeleteTags DescribeSubnets ModifySubnetAttribute",
        ),
        "AWS::EC2::SubnetCidrBlock": (
            "ec2: AssociateSubnetCidrBlock DescribeSubnets DisassociateSubnetCidrBlock",
        ),
        "AWS::EC2::SubnetRouteTableAssociation": (
            (
                "ec2: AssociateRouteTable DescribeRouteTables DescribeSubnets DisassociateRouteTable "
                "ReplaceRouteTableAssociation"
            ),
        ),
        "AWS::EC2::VPC": (
            (
                "ec2: CreateTags CreateVpc DeleteTags DeleteVpc DescribeSecurityGroups DescribeVpcAttribute "
                "DescribeVpcs ModifyVpcAttribute"
            ),
        ),
        "AWS::EC2::VPCCidrBlock": ("ec2: AssociateVpcCidrBlock DescribeVpcs DisassociateVpcCidrBlock",),
        "AWS::EC2::VPCEndpoint": (
            (
                "ec2: CreateTags CreateVpcEndpoint DeleteTags DeleteVpcEndpoints DescribeSecurityGroups "
                "DescribeSubnets DescribeVpcEndpoints ModifyVpcEndpoint"
            ),
        ),
        "AWS::EC2::VPCGatewayAttachment": (
            "ec2: AttachInternetGateway DescribeInternetGateways DetachInternetGateway",
        ),
        "AWS::ECS::Cluster": (
            (
                "ecs: CreateCluster DeleteCluster DescribeClusters ListTagsForResource TagResource "
                "UntagResource UpdateCluster UpdateClusterSettings"
            ),
            "iam: CreateServiceLinkedRole",
        ),
        "AWS::ECS::Service": (
            (
                "ecs: CreateService DeleteService DescribeServices ListTagsForResource TagResource "
                "UntagResource UpdateService"
            ),
            "iam: PassRole",
        ),
        "AWS::ECS::TaskDefinition": (
            (
                "ecs: DeregisterTaskDefinition DescribeTaskDefinition ListTagsForResource "
                "RegisterTaskDefinition TagResource UntagResource"
            ),
            "iam: GetRole PassRole",
        ),
        "AWS::ElastiCache::ParameterGroup": (
            (
                "elasticache: AddTagsToResource CreateCacheParameterGroup DeleteCacheParameterGroup "
                "DescribeCacheParameterGroups DescribeCacheParameters DescribeEngineDefaultParameters "
                "ListTagsForResource ModifyCacheParameterGroup RemoveTagsFromResource ResetCacheParameterGroup"
            ),
        ),
        "AWS::ElastiCache::ReplicationGroup": (
            (
                "elasticache: AddTagsToResource CreateReplicationGroup DecreaseReplicaCount "
                "DeleteReplicationGroup DescribeCacheClusters DescribeReplicationGroups IncreaseReplicaCount "
                "ListTagsForResource ModifyReplicationGroup RemoveTagsFromResource"
            ),
            "iam: CreateServiceLinkedRole",
        ),
        "AWS::ElastiCache::SubnetGroup": (
            (
                "elasticache: AddTagsToResource CreateCacheSubnetGroup DeleteCacheSubnetGroup "
                "DescribeCacheSubnetGroups ListTagsForResource ModifyCacheSubnetGroup RemoveTagsFromResource"
            ),
        ),
        "AWS::ElastiCache::User": (
            (
                "elasticache: AddTagsToResource CreateUser DeleteUser DescribeUsers ListTagsForResource "
                "ModifyUser RemoveTagsFromResource"
            ),
        ),
        "AWS::ElastiCache::UserGroup": (
            (
                "elasticache: AddTagsToResource CreateUserGroup DeleteUserGroup DescribeUserGroups "
                "ListTagsForResource ModifyUserGroup RemoveTagsFromResource"
            ),
        ),
        "AWS::ElasticLoadBalancingV2::Listener": (
            (
                "elasticloadbalancing: AddTags CreateListener DeleteListener DescribeListenerAttributes "
                "DescribeListeners DescribeTags ModifyListener ModifyListenerAttributes RemoveTags"
            ),
        ),
        "AWS::ElasticLoadBalancingV2::LoadBalancer": (
            (
                "elasticloadbalancing: AddTags CreateLoadBalancer DeleteLoadBalancer "
                "DescribeLoadBalancerAttributes DescribeLoadBalancers DescribeTags "
                "ModifyLoadBalancerAttributes RemoveTags SetSecurityGroups SetSubnets"
            ),
            "iam: CreateServiceLinkedRole",
        ),
        "AWS::ElasticLoadBalancingV2::TargetGroup": (
            (
                "elasticloadbalancing: AddTags CreateTargetGroup DeleteTargetGroup DescribeTags "
                "DescribeTargetGroupAttributes DescribeTargetGroups DescribeTargetHealth ModifyTargetGroup "
                "ModifyTargetGroupAttributes RemoveTags"
            ),
        ),
        "AWS::Events::Rule": (
            (
                "events: DeleteRule DescribeRule ListTagsForResource ListTargetsByRule PutRule PutTargets "
                "RemoveTargets TagResource UntagResource"
            ),
        ),
        "AWS::IAM::InstanceProfile": (
            (
                "iam: AddRoleToInstanceProfile CreateInstanceProfile DeleteInstanceProfile GetInstanceProfile "
                "PassRole RemoveRoleFromInstanceProfile"
            ),
        ),
        "AWS::IAM::Role": (
            (
                "iam: CreateRole DeleteRole DeleteRolePolicy GetRole GetRolePolicy ListRolePolicies "
                "PutRolePermissionsBoundary PutRolePolicy TagRole UntagRole UpdateAssumeRolePolicy UpdateRole "
                "UpdateRoleDescription"
            ),
        ),
        "AWS::Lambda::Alias": (
            (
                "lambda: CreateAlias DeleteAlias DeleteProvisionedConcurrencyConfig GetAlias "
                "GetProvisionedConcurrencyConfig PutProvisionedConcurrencyConfig UpdateAlias"
            ),
        ),
        "AWS::Lambda::EventInvokeConfig": (
            (
                "lambda: DeleteFunctionEventInvokeConfig GetFunctionEventInvokeConfig "
                "PutFunctionEventInvokeConfig UpdateFunctionEventInvokeConfig"
            ),
        ),
        "AWS::Lambda::EventSourceMapping": (
            (
                "lambda: CreateEventSourceMapping DeleteEventSourceMapping GetEventSourceMapping ListTags "
                "TagResource UntagResource UpdateEventSourceMapping"
            ),
        ),
        "AWS::Lambda::Function": (
            "ec2: DescribeNetworkInterfaces DescribeSecurityGroups DescribeSubnets DescribeVpcs",
            "iam: PassRole",
            (
                "lambda: CreateFunction DeleteFunction DeleteFunctionConcurrency GetFunction "
                "PutFunctionConcurrency TagResource UntagResource UpdateFunctionCode "
                "UpdateFunctionConfiguration"
            ),
            "s3: GetObject",
        ),
        "AWS::Lambda::Permission": ("lambda: AddPermission GetPolicy RemovePermission",),
        "AWS::Lambda::Version": (
            (
                "lambda: DeleteFunction GetFunctionConfiguration GetProvisionedConcurrencyConfig "
                "PublishVersion PutProvisionedConcurrencyConfig"
            ),
        ),
        "AWS::Logs::LogGroup": (
            (
                "logs: CreateLogGroup DeleteLogGroup DeleteRetentionPolicy DescribeLogGroups "
                "ListTagsForResource PutRetentionPolicy TagResource UntagResource"
            ),
        ),
        "AWS::Route53::HostedZone": (
            "ec2: DescribeVpcs",
            (
                "route53: AssociateVPCWithHostedZone ChangeTagsForResource CreateHostedZone DeleteHostedZone "
                "DisassociateVPCFromHostedZone GetChange GetHostedZone ListTagsForResource "
                "UpdateHostedZoneComment"
            ),
        ),
        "AWS::S3::Bucket": (
            (
                "s3: CreateBucket DeleteBucket GetBucketOwnershipControls GetBucketPublicAccessBlock "
                "GetBucketTagging GetBucketVersioning GetEncryptionConfiguration GetLifecycleConfiguration "
                "ListBucket PutBucketOwnershipControls PutBucketPublicAccessBlock PutBucketTagging "
                "PutBucketVersioning PutEncryptionConfiguration PutLifecycleConfiguration"
            ),
        ),
        "AWS::S3::BucketPolicy": ("s3: DeleteBucketPolicy GetBucketPolicy PutBucketPolicy",),
        "AWS::SNS::Subscription": (
            (
                "sns: GetSubscriptionAttributes ListSubscriptionsByTopic SetSubscriptionAttributes Subscribe "
                "Unsubscribe"
            ),
        ),
        "AWS::SNS::Topic": (
            (
                "sns: CreateTopic DeleteTopic GetTopicAttributes ListSubscriptionsByTopic ListTagsForResource "
                "SetTopicAttributes Subscribe TagResource Unsubscribe UntagResource"
            ),
        ),
        "AWS::SNS::TopicPolicy": ("sns: SetTopicAttributes",),
        "AWS::SQS::Queue": (
            (
                "sqs: CreateQueue DeleteQueue GetQueueAttributes GetQueueUrl ListQueueTags SetQueueAttributes "
                "TagQueue UntagQueue"
            ),
        ),
        "AWS::SQS::QueuePolicy": ("sqs: SetQueueAttributes",),
        "AWS::Scheduler::Schedule": (
            "iam: PassRole",
            "scheduler: CreateSchedule DeleteSchedule GetSchedule UpdateSchedule",
        ),
        "AWS::SecretsManager::Secret": (
            (
                "secretsmanager: CreateSecret DeleteSecret DescribeSecret GetRandomPassword GetSecretValue "
                "TagResource UntagResource UpdateSecret"
            ),
        ),
    }
)
"""A type of CloudFormation -> by service, the actions to make, see, change and remove one."""


def stack_actions(types: Iterable[str]) -> frozenset[str]:
    """The IAM actions for resources of these types. KeyError for a type that the table lacks."""
    found = set()
    for name in types:
        for line in STACK_ACTIONS[name]:
            service, _, actions = line.partition(":")
            found |= {f"{service}:{action}" for action in actions.split()}
    return frozenset(found)
