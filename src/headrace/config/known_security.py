"""Kafka's settings for TLS, SASL, tokens and authorization, written as `known` has them.

`SECURITY` has those that somebody would rely on, `TIMES` the numbers that go with them.
"""

from __future__ import annotations

from typing import Final

SECURITY: Final = """\
authorizer.class.name | string | | r | | The class that says who may do what.
delegation.token.secret.key | password | | r | | The secret that tokens are made with.
early.start.listeners | list | | r | | The listeners that open before the authorizer is ready.
principal.builder.class | class | org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | b | | \
The class that says who a client is.
sasl.client.callback.handler.class | class | | r | | A class for what a client of SASL is asked.
sasl.enabled.mechanisms | list | GSSAPI | b | | The mechanisms of SASL that clients may use.
sasl.jaas.config | password | | b | | The login context of SASL.
sasl.kerberos.kinit.cmd | string | /usr/bin/kinit | b | | The command that gets a ticket.
sasl.kerberos.principal.to.local.rules | list | DEFAULT | b | | How principals of Kerberos become names.
sasl.kerberos.service.name | string | | b | | The name that the broker has in Kerberos.
sasl.login.callback.handler.class | class | | r | | A class for what a login is asked.
sasl.login.class | class | | r | | A class that logs in.
sasl.mechanism.controller.protocol | string | GSSAPI | r | | The mechanism of SASL among controllers.
sasl.mechanism.inter.broker.protocol | string | GSSAPI | b | | The mechanism of SASL among brokers.
sasl.oauthbearer.assertion.algorithm | string | RS256 | r | | How an assertion is signed.
sasl.oauthbearer.assertion.claim.aud | string | | r | | For whom an assertion is.
sasl.oauthbearer.assertion.claim.iss | string | | r | | Who an assertion is from.
sasl.oauthbearer.assertion.claim.jti.include | boolean | false | r | | Whether an assertion has an id.
sasl.oauthbearer.assertion.claim.sub | string | | r | | Whom an assertion is about.
sasl.oauthbearer.assertion.file | string | | r | | A file with an assertion.
sasl.oauthbearer.assertion.private.key.file | string | | r | | The key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase | password | | r | | The passphrase of that key.
sasl.oauthbearer.assertion.template.file | string | | r | | A file with the claims of assertions.
sasl.oauthbearer.client.credentials.client.id | string | | r | | The id that a client has at the identity provider.
sasl.oauthbearer.client.credentials.client.secret | password | | r | | The secret that goes with it.
sasl.oauthbearer.expected.audience | list | | r | | For whom a token must be.
sasl.oauthbearer.expected.issuer | string | | r | | Who a token must be from.
sasl.oauthbearer.jwks.endpoint.url | string | | r | | Where those keys are.
sasl.oauthbearer.jwt.retriever.class | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever | r | |\
 The class that gets tokens.
sasl.oauthbearer.jwt.validator.class | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator | r | |\
 The class that checks tokens.
sasl.oauthbearer.scope | string | | r | | What a token is asked for.
sasl.oauthbearer.scope.claim.name | string | scope | r | | The claim that has the scope.
sasl.oauthbearer.sub.claim.name | string | sub | r | | The claim that has the subject.
sasl.oauthbearer.token.endpoint.url | string | | r | | Where tokens are asked for.
sasl.server.callback.handler.class | class | | r | | A class for what a server of SASL is asked.
security.inter.broker.protocol | string | PLAINTEXT | r | | The security of connections among brokers.
security.providers | string | | r | | Classes that bring algorithms of security.
ssl.allow.dn.changes | boolean | false | r | | Whether a new certificate may have another name.
ssl.allow.san.changes | boolean | false | r | | Whether it may have other alternative names.
ssl.cipher.suites | list | | b | | The ciphers of TLS.
ssl.client.auth | string | none | b | | Whether clients need a certificate: required, requested or none.
ssl.enabled.protocols | list | TLSv1.2,TLSv1.3 | b | | The versions of TLS.
ssl.endpoint.identification.algorithm | string | https | b | | How the name of a server is checked.
ssl.engine.factory.class | class | | b | | A class that makes TLS.
ssl.key.password | password | | b | | The password of the key.
ssl.keymanager.algorithm | string | SunX509 | b | | How keys are found.
ssl.keystore.certificate.chain | password | | b | | The certificates of the broker, as PEM.
ssl.keystore.key | password | | b | | Its key, as PEM.
ssl.keystore.location | string | | b | | The file with both.
ssl.keystore.password | password | | b | | The password of that file.
ssl.keystore.type | string | JKS | b | | What that file is.
ssl.principal.mapping.rules | string | DEFAULT | r | | How names in certificates become names of users.
ssl.protocol | string | TLSv1.3 | b | | The version of TLS.
ssl.provider | string | | b | | Who implements TLS.
ssl.secure.random.implementation | string | | b | | Where random numbers are from.
ssl.trustmanager.algorithm | string | PKIX | b | | How certificates are trusted.
ssl.truststore.certificates | password | | b | | The certificates that are trusted, as PEM.
ssl.truststore.location | string | | b | | The file with them.
ssl.truststore.password | password | | b | | The password of that file.
ssl.truststore.type | string | JKS | b | | What that file is.
"""

TIMES: Final = """\
connection.failed.authentication.delay.ms | int | 100 | r | 0.. | How long a refused client waits for its answer.
connections.max.reauth.ms | long | 0 | r | | How long an authentication counts.
delegation.token.expiry.check.interval.ms | long | 3600000 | r | 1.. | How often expired tokens are removed.
delegation.token.expiry.time.ms | long | 86400000 | r | 1.. | How long a token lasts before it must be renewed.
delegation.token.max.lifetime.ms | long | 604800000 | r | 1.. | How long a token can be renewed.
sasl.kerberos.min.time.before.relogin | long | 60000 | b | | The least time between two logins.
sasl.kerberos.ticket.renew.jitter | double | 0.05 | b | | How much chance there is in the time of a renewal.
sasl.kerberos.ticket.renew.window.factor | double | 0.8 | b | | How late in its life a ticket is renewed.
sasl.login.connect.timeout.ms | int | | r | | How long a login waits for a connection to the identity provider.
sasl.login.read.timeout.ms | int | | r | | How long it waits for its answer.
sasl.login.refresh.buffer.seconds | short | 300 | b | 0.. | How long before its end a login is refreshed at the latest.
sasl.login.refresh.min.period.seconds | short | 60 | b | 0.. | How long a login is not refreshed.
sasl.login.refresh.window.factor | double | 0.8 | b | | How late in its life a login is refreshed.
sasl.login.refresh.window.jitter | double | 0.05 | b | | How much chance there is in that.
sasl.login.retry.backoff.max.ms | long | 10000 | r | | The longest pause between tries of a login.
sasl.login.retry.backoff.ms | long | 100 | r | | The first pause.
sasl.oauthbearer.assertion.claim.exp.seconds | int | 300 | r | | How long an assertion lasts.
sasl.oauthbearer.assertion.claim.nbf.seconds | int | 60 | r | | How long before now an assertion begins.
sasl.oauthbearer.clock.skew.seconds | int | 30 | r | | How far clocks may differ.
sasl.oauthbearer.jwks.endpoint.refresh.ms | long | 3600000 | r | | How often the provider's keys are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long | 10000 | r | | The longest pause between tries of that.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long | 100 | r | | The first pause.
sasl.server.max.receive.size | int | 524288 | r | | The most bytes before a client is authenticated.
"""
