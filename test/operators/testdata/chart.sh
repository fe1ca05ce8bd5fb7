# Makes the chart of cert-manager as a release does: with its version, and with the definitions.
set -eu
cp -r "$1/deploy/charts/cert-manager" chart
chmod -R u+w chart
{ grep -v -e '^version:' -e '^appVersion:' -e IS_PRERELEASE chart/Chart.template.yaml; echo 'version: v1.11.5'; echo 'appVersion: v1.11.5'; } >chart/Chart.yaml
{
	echo '{{- if .Values.installCRDs }}'
	for f in "$1"/deploy/crds/crd-*.yaml; do echo ---; cat "$f"; done
	echo '{{- end }}'
} >chart/templates/crds.yaml
